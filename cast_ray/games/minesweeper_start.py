"""Minesweeper boards from coordinates instead of text: a layout, and its start."""

from __future__ import annotations

from collections.abc import Iterable

from cast_ray.errors import PuzzleError
from cast_ray.games.minesweeper import (
    Minesweeper,
    MinesweeperLayout,
    MinesweeperState,
    action_on,
    check_size,
)

_MINESWEEPER = Minesweeper()


def mined_layout(rows: int, cols: int, mines: Iterable[tuple[int, int]]) -> MinesweeperLayout:
    """Return a layout with mines at these places.

    Args:
        rows: number of rows.
        cols: number of columns.
        mines: (row, column) of each mine.

    Raises:
        PuzzleError: the board has no cell or too many, a mine is outside of it or given twice;
            row and column are named.
    """
    check_size(rows, cols)
    mine_set = 0
    for row, col in mines:
        _check_place(row, col, rows=rows, cols=cols)
        mine = 1 << row * cols + col
        if mine_set & mine:
            raise PuzzleError(f"the mine at row {row}, column {col} is given twice: keep one")
        mine_set |= mine
    return MinesweeperLayout(rows=rows, cols=cols, mines=mine_set)


def start_state(
    rows: int, cols: int, *, mines: Iterable[tuple[int, int]], first_click: tuple[int, int]
) -> MinesweeperState:
    """Return a board on which the first click has been opened.

    Args:
        rows: number of rows.
        cols: number of columns.
        mines: (row, column) of each mine.
        first_click: (row, column) of a cell without a mine.

    Raises:
        PuzzleError: as for ``mined_layout``, or the click is outside of the board or hits a mine.
    """
    layout = mined_layout(rows, cols, mines)
    row, col = first_click
    _check_place(row, col, rows=rows, cols=cols)
    click = row * cols + col
    if layout.mines >> click & 1:
        raise PuzzleError(
            f"the first click at row {row}, column {col} hits a mine: click a safe cell"
        )
    closed = MinesweeperState(layout=layout, revealed=0, flags=0)
    return _MINESWEEPER.apply(closed, action_on(layout, "reveal", click)).state


def _check_place(row: int, col: int, *, rows: int, cols: int) -> None:
    """Raise PuzzleError unless the cell is on the board."""
    if not (0 <= row < rows and 0 <= col < cols):
        raise PuzzleError(
            f"row {row}, column {col} is not on the board: rows are 0 to {rows - 1}, "
            f"columns 0 to {cols - 1}"
        )
