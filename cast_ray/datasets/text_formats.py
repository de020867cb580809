"""Read boards from files of other programs, as text for ``Game.decode``.

A board's fault is returned as a value, so that all faults of a file can be shown together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.costs import cost_as_float
from cast_ray.games.game import Tier
from cast_ray.games.minesweeper import start_state

_BOARD_COLUMNS = ("board", "board_config")
_MINE_COLUMNS = ("mines", "mine_positions")
_COST_COLUMNS = ("cost_to_go", "optimal_moves", "min_moves_optimal")
_FROM_XSB = str.maketrans("@+$. -", "PSXO__")
"""The usual Sokoban symbols to ours; only ``#`` and ``*`` are in both, with the same meaning."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardText:
    """One board of a file."""

    place: str
    """Where it is in the file: ``row 3``, from zero, or ``line 17`` of a text, from one."""
    text: str = ""
    """For ``Game.decode``."""
    fault: str = ""
    """Why there is no text; empty if there is."""
    cost: float | None = None
    """The cost given in the file; ``inf`` = infinite, NaN = unknown, None = not given."""


def read_boards(path: Path, game: str, tier: Tier) -> list[BoardText]:
    """Return the boards of a Parquet file or a text file, in order.

    Args:
        path: a Parquet file with a column of boards, or of mines and first clicks; or boards as
            text, separated by empty lines or lines that start with ``;`` (Rush Hour: one per line).
        game: name of the game.
        tier: the size of Minesweeper boards if the file only has mines.

    Raises:
        PuzzleError: the file cannot be read, or has no column of boards.
    """
    try:
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet:
            return _parquet_boards(path, pq.read_table(path), game, tier)
        text = path.read_text()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise PuzzleError(
            f"{path} cannot be read ({error}): give a Parquet file or a text file of boards"
        ) from error
    read = _rush_hour_lines if game == "rush_hour" else _text_boards
    return list(read(text, game))


def _parquet_boards(path: Path, table: pa.Table, game: str, tier: Tier) -> list[BoardText]:
    names = table.column_names
    board_column = next((name for name in _BOARD_COLUMNS if name in names), None)
    mine_column = next((name for name in _MINE_COLUMNS if name in names), None)
    cost_column = next((name for name in _COST_COLUMNS if name in names), None)
    if board_column is not None:
        to_text = partial(_board_text, column=board_column)
    elif game == "minesweeper" and mine_column is not None and "first_click" in names:
        to_text = partial(_mine_text, column=mine_column, tier=tier)
    elif any("seed" in name for name in names):
        raise PuzzleError(
            f"{path} has seeds of another generator and no boards: build boards with cast-ray data "
            "build, or export the boards themselves"
        )
    else:
        raise PuzzleError(
            f"{path} has the columns {', '.join(names)}, and none of them has boards: call that "
            "column board, or for Minesweeper give mines and first_click"
        )
    return [
        _given(f"row {number}", to_text, row, _given_cost(row, cost_column, game))
        for number, row in enumerate(table.to_pylist())
    ]


def _given(
    place: str,
    to_text: Callable[[Mapping[str, Any]], str],
    row: Mapping[str, Any],
    cost: float | None,
) -> BoardText:
    try:
        return BoardText(place=place, text=to_text(row), cost=cost)
    except PuzzleError as error:
        return BoardText(place=place, fault=str(error), cost=cost)


def _given_cost(row: Mapping[str, Any], column: str | None, game: str) -> float | None:
    """Return the cost of a row; None if it has none."""
    if column is None:
        return None
    cost = row[column]
    if "cost_status" in row and isinstance(cost, int | None):  # one of our files
        return cost_as_float(cost, row["cost_status"])
    if isinstance(cost, int | float) and not math.isnan(cost):
        return float(cost)
    # The reference implementation writes null for Minesweeper boards that its solver loses.
    return math.inf if game == "minesweeper" else None


def _board_text(row: Mapping[str, Any], *, column: str) -> str:
    if not isinstance(row[column], str):
        raise PuzzleError(f"{column} is {row[column]!r} and not text: give the board's rows")
    return row[column]


def _mine_text(row: Mapping[str, Any], *, column: str, tier: Tier) -> str:
    return _opened_board(
        row.get("rows", tier.rows),
        row.get("cols", tier.cols),
        mines=_pairs(row[column], column),
        first_click=_pair(_plain(row["first_click"], "first_click"), "first_click"),
    )


def _text_boards(text: str, game: str) -> Iterator[BoardText]:
    """Yield the blocks of lines between separators."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip() and not line.startswith(";"):
            block.append(line)
            continue
        if block:
            first = number - len(block)
            board = _from_xsb(block) if game == "sokoban" else block
            yield BoardText(place=f"line {first}", text="\n".join(board))
        block = []


def _rush_hour_lines(text: str, game: str) -> Iterator[BoardText]:
    """Yield one board per line: ``[moves] board [states]``, as in public lists."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.startswith((";", "#")):
            continue
        place = f"line {number}"
        cost = float(words.pop(0)) if len(words) > 1 and words[0].isdecimal() else None
        if len(words) == 2 and words[1].isdecimal():
            words.pop()  # the number of reachable states
        if len(words) == 1:
            yield BoardText(place=place, text=words[0], cost=cost)
        else:
            fault = f"{len(words)} words at column {len(line) - len(line.lstrip())}: give one board"
            yield BoardText(place=place, fault=fault, cost=cost)


def _from_xsb(lines: list[str]) -> list[str]:
    """Return Sokoban lines in our symbols, with walls outside the room.

    A space may be floor or outside, and lines may end early: what the player could not reach
    without boxes becomes wall. Floor written as ``_`` stays floor.
    """
    cols = max(len(line) for line in lines)
    given = [line.ljust(cols) for line in lines]
    board = [line.translate(_FROM_XSB) for line in given]
    inside = {
        (r, c) for r, line in enumerate(board) for c, symbol in enumerate(line) if symbol in "PS"
    }
    if not inside:
        return board  # decoding it names its fault with these rows and columns
    unvisited = list(inside)
    while unvisited:
        row, col = unvisited.pop()
        for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
            is_on_board = 0 <= r < len(board) and 0 <= c < cols
            if is_on_board and board[r][c] != "#" and (r, c) not in inside:
                inside.add((r, c))
                unvisited.append((r, c))
    return [
        "".join(
            "#" if given[r][c] in " -" and (r, c) not in inside else symbol
            for c, symbol in enumerate(line)
        )
        for r, line in enumerate(board)
    ]


def _opened_board(
    rows: object, cols: object, *, mines: Iterable[tuple[int, int]], first_click: tuple[int, int]
) -> str:
    """Return a Minesweeper board as text, with its first click opened by the rules."""
    if not (isinstance(rows, int) and isinstance(cols, int) and rows > 0 and cols > 0):
        raise PuzzleError(f"rows and cols must be positive numbers, got {rows!r} and {cols!r}")
    state = start_state(rows, cols, mines=mines, first_click=first_click)
    return get_game("minesweeper").encode(state)


def _plain(value: object, column: str) -> Any:  # Any: checked by _pair
    """Return a list, which may be written as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):  # not JSON, or too many digits or brackets
        raise PuzzleError(
            f"{column} is {value[:_SHOWN_CHARACTERS]!r}, which is not a list: give [row, column]"
        ) from None


def _pairs(value: object, column: str) -> list[tuple[int, int]]:
    entries = _plain(value, column)
    if not isinstance(entries, list):
        raise PuzzleError(f"{column} is {entries!r}: give a list of [row, column]")
    return [_pair(entry, column) for entry in entries]


def _pair(value: object, column: str) -> tuple[int, int]:
    entries = list(value.values()) if isinstance(value, dict) else value
    if isinstance(entries, list | tuple) and len(entries) == 2:
        row, col = entries
        if isinstance(row, int) and isinstance(col, int):
            return row, col
    raise PuzzleError(f"{column} holds {value!r}: give [row, column]")
