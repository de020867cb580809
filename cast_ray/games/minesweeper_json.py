"""Minesweeper boards from JSON: size and mines, and what is open or the first click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cast_ray.errors import PuzzleError
from cast_ray.games.minesweeper_board import (
    MAX_CELLS,
    MinesweeperState,
    check_mines,
    extent,
    mined_layout,
    start_state,
)
from cast_ray.games.text import check_grid, members, place_of, shown

MINEFIELD_KEYS = ("rows", "cols", "mines", "revealed", "flags", "first_click")


def read_minefield(request: Mapping[str, Any]) -> MinesweeperState:
    """Return the state that ``MINEFIELD_KEYS`` describe; null counts as missing.

    ``revealed`` and ``flags`` hold one text of 0 and 1 per row; ``flags`` may be missing.
    ``first_click`` may replace both: that cell is opened by the rules. A mine may be open; the game
    is then lost.

    Args:
        request: the JSON object. Any: its values are not checked yet.

    Raises:
        PuzzleError: something is missing, of the wrong type or size, given twice, or contradicts
            the rest; row and column are named.
    """
    rows, cols = _read_size(request, "rows"), _read_size(request, "cols")
    mines = _read_mines(request, rows=rows, cols=cols)
    click, revealed, flags = (request.get(key) for key in ("first_click", "revealed", "flags"))
    if click is None and revealed is None:
        raise PuzzleError('"revealed" and "first_click" are missing: give one of them')
    if click is not None and (revealed is not None or flags is not None):
        other = "revealed" if revealed is not None else "flags"
        raise PuzzleError(f'"first_click" and "{other}" are both given: leave one of them out')
    if click is not None:
        place = _read_place(click, "first_click")
        return start_state(rows, cols, mines=mines, first_click=place)
    layout = mined_layout(rows, cols, mines)
    state = MinesweeperState(
        layout=layout,
        revealed=_read_cells(revealed, "revealed", rows=rows, cols=cols),
        flags=0 if flags is None else _read_cells(flags, "flags", rows=rows, cols=cols),
    )
    check_mines(layout, state.revealed)
    flagged = state.revealed & state.flags
    if flagged:
        raise PuzzleError(
            f"the flag at {place_of(members(flagged)[0], cols)} is on a revealed cell: take it away"
        )
    return state


def _read_size(request: Mapping[str, Any], key: str) -> int:
    size = request.get(key)
    # A JSON true would pass for the integer 1.
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_CELLS:
        raise PuzzleError(f'"{key}" is {shown(size)}: give a number from 1 to {MAX_CELLS}')
    return size


def _read_mines(request: Mapping[str, Any], *, rows: int, cols: int) -> list[tuple[int, int]]:
    mines = request.get("mines")
    if not isinstance(mines, list):
        raise PuzzleError(f'"mines" is {shown(mines)}: give a list of [row, column]')
    if len(mines) > rows * cols:
        raise PuzzleError(
            f"the board has {len(mines)} mines and only {rows * cols} cells, in "
            f"{extent(rows, cols)}: leave at least one cell without a mine"
        )
    return [_read_place(mine, f"mine {number}") for number, mine in enumerate(mines)]


def _read_place(value: object, name: str) -> tuple[int, int]:
    match value:
        case [int(row), int(col)] if not (isinstance(row, bool) or isinstance(col, bool)):
            if max(abs(row), abs(col)) <= MAX_CELLS:
                return row, col
            raise PuzzleError(f"{name} is [{shown(row)}, {shown(col)}]: that is on no board")
        case [row, col]:
            found = f"[{shown(row)}, {shown(col)}]"
        case [*values]:
            found = f"a list of {len(values)}"
        case _:
            found = shown(value)
    raise PuzzleError(f"{name} is {found}: give its [row, column] as two integers")


def _read_cells(value: object, name: str, *, rows: int, cols: int) -> int:
    """Return a set of cells from one text of 0 and 1 per row."""
    if not isinstance(value, list):
        raise PuzzleError(f'"{name}" is {shown(value)}: give a list of rows of 0 and 1')
    if len(value) != rows:
        raise PuzzleError(
            f'"{name}" has {len(value)} rows, it is too short or too long at row '
            f"{min(len(value), rows)}, column 0: give {rows} rows of {cols}"
        )
    for row, line in enumerate(value):
        if not isinstance(line, str):
            raise PuzzleError(f'row {row} of "{name}" is {shown(line)}: give a text of 0 and 1')
    check_grid(value, "01", name=f'"{name}"', cols=cols)
    # Cell 0 is the lowest bit.
    return int("".join(value)[::-1], 2)
