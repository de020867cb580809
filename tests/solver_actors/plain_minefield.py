"""A Minesweeper board as sets of cells: counts and flood fill, without the rules' own code.

Cells are ``(row, column)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

Cell = tuple[int, int]
Numbers = dict[Cell, int]
"""What a player sees: the number on every revealed cell. All other cells are hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A layout and what is open of it."""

    rows: int
    cols: int
    mines: frozenset[Cell]
    revealed: frozenset[Cell]

    @property
    def is_lost(self) -> bool:
        """A mine is revealed."""
        return bool(self.mines & self.revealed)

    @property
    def is_won(self) -> bool:
        """Every safe cell is revealed, and no mine."""
        return not self.is_lost and len(self.revealed | self.mines) == self.rows * self.cols

    @property
    def view(self) -> tuple[int, int, int, Numbers]:
        """Rows, columns, number of mines, numbers: all that a peek-free player may know."""
        numbers = {cell: count(self, cell) for cell in self.revealed - self.mines}
        return self.rows, self.cols, len(self.mines), numbers


@cache
def all_cells(rows: int, cols: int) -> tuple[Cell, ...]:
    """Return the cells of a board, row-major."""
    return tuple((row, col) for row in range(rows) for col in range(cols))


@cache
def neighbours(rows: int, cols: int, cell: Cell) -> frozenset[Cell]:
    """Return the up to 8 cells that touch a cell."""
    row, col = cell
    return frozenset(
        (r, c)
        for r, c in all_cells(rows, cols)
        if abs(r - row) <= 1 and abs(c - col) <= 1 and (r, c) != cell
    )


def count(board: Board, cell: Cell) -> int:
    """Return the number of mines that touch a cell."""
    return len(neighbours(board.rows, board.cols, cell) & board.mines)


def reveal(board: Board, cell: Cell, flags: frozenset[Cell] = frozenset()) -> Board:
    """Return the board after a reveal and its flood fill, which skips flagged cells."""
    opened, frontier = set(board.revealed), [cell]
    while frontier:
        here = frontier.pop()
        if here not in opened:
            opened.add(here)
            if here not in board.mines and count(board, here) == 0:
                frontier += neighbours(board.rows, board.cols, here) - flags
    return replace(board, revealed=frozenset(opened))
