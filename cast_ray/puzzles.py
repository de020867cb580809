"""Puzzles as data: one row a puzzle in a Parquet file that is checked whole when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.files import written_aside
from cast_ray.games import get_game
from cast_ray.games.base import Game

PUZZLE_SCHEMA = pa.schema(
    [
        pa.field("game", pa.string(), nullable=False),
        pa.field("tier", pa.string(), nullable=False),
        pa.field("puzzle_id", pa.string(), nullable=False),
        pa.field("board", pa.string(), nullable=False),
        pa.field("cost_to_go", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """One start state; fields are the columns of ``PUZZLE_SCHEMA``."""

    game: str
    tier: str
    puzzle_id: str
    """``puzzle_id_of`` the start state: equal for puzzles that are equal up to symmetry."""
    board: str
    """The start state as ``Game.encode`` writes it."""
    cost_to_go: int
    """N of the start state, in the game's moves."""
    seed: int
    """Seed of the NumPy generator that made this board, 0 for an imported one."""


def puzzle_id_of(game: Game[Any], state: Any) -> str:
    """Return 16 hexadecimal digits that are the same for all symmetric forms of a state."""
    return hashlib.sha256(game.canonical(state).encode()).hexdigest()[:16]


def write_puzzles(path: Path, puzzles: Iterable[Puzzle]) -> None:
    """Write a puzzle file that is whole or absent."""
    table = pa.Table.from_pylist([asdict(puzzle) for puzzle in puzzles], schema=PUZZLE_SCHEMA)
    with written_aside(path) as aside:
        pq.write_table(table, aside)


def read_puzzles(path: Path) -> list[Puzzle]:
    """Return the puzzles of a file, in order, each board decoded once to check it.

    Raises:
        PuzzleError: no such file, no Parquet, other columns, or a row that is no puzzle; the
            message names the file, the row (from zero) and the reason.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise PuzzleError(f"{path}: there is no such puzzle file, build it first") from error
    except (pa.ArrowException, OSError) as error:
        raise PuzzleError(f"{path}: not a readable Parquet file ({error})") from error
    if table.schema.names != PUZZLE_SCHEMA.names or table.schema.types != PUZZLE_SCHEMA.types:
        wanted = ", ".join(f"{field.name} {field.type}" for field in PUZZLE_SCHEMA)
        found = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise PuzzleError(f"{path}: a puzzle file has the columns {wanted}; this one has {found}")
    puzzles: list[Puzzle] = []
    for number, row in enumerate(table.to_pylist()):
        try:
            puzzles.append(_checked_puzzle(row))
        except (ConfigError, PuzzleError) as error:
            raise PuzzleError(f"{path}, row {number}: {error}") from error
    return puzzles


def _checked_puzzle(row: Mapping[str, Any]) -> Puzzle:
    """Return a row as a Puzzle, or raise if it contradicts itself or the rules."""
    puzzle = Puzzle(**row)
    missing = [name for name, value in row.items() if value is None]
    if missing:
        raise PuzzleError(f"{', '.join(missing)} is null: give it a value")
    game = get_game(puzzle.game)
    if puzzle.tier not in game.tiers:
        raise PuzzleError(f"tier must be one of {', '.join(game.tiers)}, got {puzzle.tier!r}")
    state = game.decode(puzzle.board)
    expected = puzzle_id_of(game, state)
    if puzzle.puzzle_id != expected:
        raise PuzzleError(
            f"puzzle_id is {puzzle.puzzle_id!r} but the board's is {expected!r}: "
            "the row was changed after it was written"
        )
    if puzzle.cost_to_go < 0:
        raise PuzzleError(f"cost_to_go must be >= 0, got {puzzle.cost_to_go}")
    return puzzle
