"""Minesweeper boards as drawings, for tests of the plain solver."""

from __future__ import annotations

from tests.solver_actors.plain_minefield import Board, Numbers, count


def drawn(text: str) -> Board:
    """Return a drawn board: ``.`` hidden and safe, ``M`` hidden mine, digits revealed, ``*`` hit.

    Raises:
        ValueError: A digit is not the number of mines around it.
    """
    lines = text.split()
    cells = {
        (row, col): symbol for row, line in enumerate(lines) for col, symbol in enumerate(line)
    }
    board = Board(
        rows=len(lines),
        cols=len(lines[0]),
        mines=frozenset(cell for cell, symbol in cells.items() if symbol in "M*"),
        revealed=frozenset(cell for cell, symbol in cells.items() if symbol not in "M."),
    )
    for cell in sorted(board.revealed - board.mines):
        if cells[cell] != str(count(board, cell)):
            raise ValueError(f"{cells[cell]} at {cell} should be {count(board, cell)}")
    return board


def numbers_drawn(text: str) -> Numbers:
    """Return the numbers of a drawn board; any other symbol is a hidden cell."""
    return {
        (row, col): int(symbol)
        for row, line in enumerate(text.split())
        for col, symbol in enumerate(line)
        if symbol.isdigit()
    }


def drawing(board: Board) -> str:
    """Return the drawing of a board."""
    rows, cols, _, numbers = board.view
    symbols = {cell: str(number) for cell, number in numbers.items()}
    symbols.update({cell: "*" if cell in board.revealed else "M" for cell in board.mines})
    return "\n".join(
        "".join(symbols.get((row, col), ".") for col in range(cols)) for row in range(rows)
    )
