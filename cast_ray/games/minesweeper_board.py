"""Minesweeper boards as values: layout and state, made from coordinates, and what a reveal opens.

A set of cells is one number, bit ``row * cols + column``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cast_ray.errors import PuzzleError
from cast_ray.games.text import members, neighbors, place_of

MAX_CELLS = 1024
"""A larger board is refused: sets of its cells would be numbers too long to work with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinesweeperLayout:
    """What never changes."""

    rows: int
    cols: int
    mines: int
    """Set of cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinesweeperState:
    """One position of a board. ``revealed`` and ``flags`` have no cell in common."""

    layout: MinesweeperLayout
    revealed: int
    """Set of open cells; a mine among them is the one that was hit."""
    flags: int
    """Set of cells."""


def check_size(rows: int, cols: int) -> None:
    """Raise PuzzleError if a board of this size has no cell, or more than ``MAX_CELLS``."""
    if rows < 1 or cols < 1:
        raise PuzzleError(f"a board of {rows} rows and {cols} columns has no cell: use at least 1")
    if rows * cols > MAX_CELLS:
        raise PuzzleError(
            f"a Minesweeper board of {rows} rows and {cols} columns has {rows * cols} cells, and "
            f"the game takes at most {MAX_CELLS}: use a smaller one"
        )


def check_mines(layout: MinesweeperLayout, revealed: int) -> None:
    """Raise PuzzleError unless a cell is safe, and at most one mine is in the set of open cells."""
    if layout.mines.bit_count() == layout.rows * layout.cols:
        raise PuzzleError(
            f"the board has no safe cell in {extent(layout.rows, layout.cols)}: leave one without "
            "a mine"
        )
    hit = members(revealed & layout.mines)
    if len(hit) > 1:
        raise PuzzleError(
            f"a second revealed mine at {place_of(hit[1], layout.cols)} (*): the first ends the "
            "game, so keep one"
        )


def extent(rows: int, cols: int) -> str:
    """Return the rows and columns of a board for a message."""
    return f"rows 0 to {rows - 1}, columns 0 to {cols - 1}"


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
    """Return a board on which the first click is open.

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
    return replace(closed, revealed=opened_by(closed, click))


def opened_by(state: MinesweeperState, cell: int) -> int:
    """Return the set of cells that a reveal opens: from a 0 on, all closed ones without a flag."""
    layout = state.layout
    around = neighbors(layout.rows, layout.cols)
    opened = 1 << cell
    unvisited = [] if layout.mines & opened else [cell]
    while unvisited:
        neighborhood = around[unvisited.pop()]
        if neighborhood & layout.mines:
            continue
        fresh = neighborhood & ~(state.revealed | state.flags | opened)
        opened |= fresh
        unvisited += members(fresh)
    return opened


def _check_place(row: int, col: int, *, rows: int, cols: int) -> None:
    """Raise PuzzleError unless the cell is on the board."""
    if not (0 <= row < rows and 0 <= col < cols):
        raise PuzzleError(
            f"row {row}, column {col} is not on the board: rows are 0 to {rows - 1}, "
            f"columns 0 to {cols - 1}"
        )
