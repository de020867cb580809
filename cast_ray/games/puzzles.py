"""Puzzles as data: one row per puzzle in a Parquet file, every row checked when it is read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from cast_ray.errors import ConfigError, DamagedFileError, PuzzleError
from cast_ray.games import find_tier, get_game
from cast_ray.games.costs import EXACT, INFINITE, UNKNOWN, cost_as_float, status_of, stored_cost
from cast_ray.games.game import Game
from cast_ray.parquet import opened, read_table, write_table

PUZZLE_SCHEMA = pa.schema(
    [
        pa.field("game", pa.string(), nullable=False),
        pa.field("tier", pa.string(), nullable=False),
        pa.field("puzzle_id", pa.string(), nullable=False),
        pa.field("board", pa.string(), nullable=False),
        pa.field("cost_to_go", pa.int32(), nullable=True),
        pa.field("cost_status", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("measures", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("title", pa.string(), nullable=False),
    ]
)
"""``cost_to_go`` is null where ``cost_status`` is not ``exact``; old files have no ``title``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """One start state; fields are the columns of ``PUZZLE_SCHEMA``."""

    game: str
    tier: str
    puzzle_id: str
    """``puzzle_id_of`` the start state: the same for puzzles that are equal up to symmetry."""
    board: str
    """The start state as ``Game.encode`` writes it."""
    cost_to_go: int | None = None
    """N (Minesweeper: K) of the start state, in the game's moves; None where it is not exact."""
    cost_status: str = UNKNOWN
    """``exact``, ``infinite`` or ``unknown``."""
    seed: int = 0
    """Seed of the NumPy generator that made this board, 0 for an imported one."""
    measures: Mapping[str, float] = field(default_factory=dict, hash=False)
    """How difficult the board is besides its cost, by the game's own measures; may be empty."""
    title: str = ""
    """What the collection calls it that it was imported from; may be empty."""

    @property
    def cost(self) -> float:
        """The cost as one float: ``inf`` = infinite, NaN = unknown."""
        return cost_as_float(self.cost_to_go, self.cost_status)


def make_puzzle(
    game: Game[Any],
    state: Any,
    *,
    tier: str,
    cost: float,
    seed: int,
    measures: Mapping[str, float],
    title: str = "",
) -> Puzzle:
    """Return a start state as a puzzle.

    Args:
        game: its rules.
        state: the start state.
        tier: name of the tier that it belongs to.
        cost: its cost-to-go; ``inf`` = infinite, NaN = unknown.
        seed: what made it, 0 if it was imported.
        measures: its difficulty.
        title: its name in a collection.
    """
    return Puzzle(
        game=game.name,
        tier=tier,
        puzzle_id=puzzle_id_of(game, state),
        board=game.encode(state),
        cost_to_go=stored_cost(cost),
        cost_status=status_of(cost),
        seed=seed,
        measures=measures,
        title=title,
    )


def puzzle_id_of(game: Game[Any], state: Any) -> str:
    """Return 16 hexadecimal digits that are the same for all symmetric forms of a state."""
    return hashlib.sha256(game.canonical(state).encode()).hexdigest()[:16]


def write_puzzles(
    path: Path, puzzles: Iterable[Puzzle], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a puzzle file, with metadata of the file; after a crash it is complete or absent."""
    rows = [
        {column.name: getattr(puzzle, column.name) for column in fields(Puzzle)}
        # Arrow takes a map as pairs; sorted, so that equal puzzles give equal bytes.
        | {"measures": sorted(puzzle.measures.items())}
        for puzzle in puzzles
    ]
    table = pa.Table.from_pylist(rows, schema=PUZZLE_SCHEMA.with_metadata(dict(metadata or {})))
    write_table(path, table)


def read_puzzle_metadata(path: Path) -> dict[str, str]:
    """Return the metadata that ``write_puzzles`` stored.

    Raises:
        PuzzleError: no such file, or no Parquet.
    """
    metadata = _read_table(path, []).schema.metadata or {}
    return {key.decode(): value.decode() for key, value in metadata.items()}


def is_puzzle_file(path: Path) -> bool:
    """Return whether a file is a table of puzzles of ours, with any content."""
    try:
        with opened(path) as file:
            return {"puzzle_id", "board", "cost_status"} <= {*file.schema_arrow.names}
    except DamagedFileError:
        return False


def read_puzzles(
    path: Path, *, is_task: Callable[[str], bool] = lambda game: False
) -> list[Puzzle]:
    """Return the puzzles of a file, in order, each board decoded once to check it.

    Args:
        path: of the file.
        is_task: returns whether a name is no game's, so that its boards are tasks, not decoded.

    Raises:
        PuzzleError: no such file, no Parquet, other columns, or a row that is no puzzle; the
            message names the file, the row (from zero) and the reason.
    """
    table = _read_table(path, None)
    if table.schema.names == PUZZLE_SCHEMA.names[:-1]:
        table = table.append_column(PUZZLE_SCHEMA.field("title"), pa.array([""] * len(table)))
    if table.schema.names != PUZZLE_SCHEMA.names or table.schema.types != PUZZLE_SCHEMA.types:
        wanted = ", ".join(f"{field.name} {field.type}" for field in PUZZLE_SCHEMA)
        found = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise PuzzleError(f"{path}: a puzzle file has the columns {wanted}; this one has {found}")
    puzzles: list[Puzzle] = []
    for number, row in enumerate(table.to_pylist()):
        try:
            puzzles.append(_checked_puzzle(row, is_task))
        except (ConfigError, PuzzleError) as error:
            raise PuzzleError(f"{path}, row {number}: {error}") from error
    return puzzles


def _read_table(path: Path, columns: list[str] | None) -> pa.Table:
    """Return some columns of a Parquet file, or all of them."""
    if not path.is_file():
        raise PuzzleError(f"{path}: there is no such puzzle file, build it first")
    try:
        return read_table(path, columns)
    except DamagedFileError as error:
        raise PuzzleError(str(error)) from error


def _checked_puzzle(row: Mapping[str, Any], is_task: Callable[[str], bool]) -> Puzzle:
    """Return a row as a Puzzle, or raise if it contradicts itself or the rules."""
    missing = [name for name, value in row.items() if value is None and name != "cost_to_go"]
    if missing:
        raise PuzzleError(f"{', '.join(missing)} is null: give it a value")
    puzzle = Puzzle(**{**row, "measures": dict(row["measures"])})
    if is_task(puzzle.game):
        return puzzle
    game = get_game(puzzle.game)
    find_tier(puzzle.game, puzzle.tier)
    expected = puzzle_id_of(game, game.decode(puzzle.board))
    if puzzle.puzzle_id != expected:
        raise PuzzleError(
            f"puzzle_id is {puzzle.puzzle_id!r} but the board's is {expected!r}: "
            "the row was changed after it was written"
        )
    _check_cost(puzzle)
    return puzzle


def _check_cost(puzzle: Puzzle) -> None:
    """Raise PuzzleError unless cost, status and measures are possible together."""
    if puzzle.cost_status not in (EXACT, INFINITE, UNKNOWN):
        raise PuzzleError(
            f"cost_status must be {EXACT}, {INFINITE} or {UNKNOWN}, got {puzzle.cost_status!r}"
        )
    if (puzzle.cost_status == EXACT) != (puzzle.cost_to_go is not None):
        raise PuzzleError(
            f"cost_to_go is {puzzle.cost_to_go} and cost_status {puzzle.cost_status}: "
            f"give a number if, and only if, it is {EXACT}"
        )
    if puzzle.cost_to_go is not None and puzzle.cost_to_go < 0:
        raise PuzzleError(f"cost_to_go must be >= 0, got {puzzle.cost_to_go}")
    for name, value in puzzle.measures.items():
        if value is None or not math.isfinite(value):
            raise PuzzleError(f"the measure {name} must be a finite number, got {value}")
