"""Random Rush Hour boards as text, for tests: with and without walls, also won, dead or jammed."""

from __future__ import annotations

import random

from hypothesis import strategies as st

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def random_board(
    seed: int, *, num_vehicles: int, num_walls: int, size: tuple[int, int] | None = None
) -> str:
    """Return a board with at most that many vehicles, the red car included, and walls.

    Of another size than the usual one the red car is in any row.
    """
    rng = random.Random(seed)
    rows, cols = size or (6, 6)
    board = ["."] * (rows * cols)
    length = rng.choice((2, 2, 2, 3))
    first = (rng.randrange(rows) if size else 2) * cols + rng.randrange(cols + 1 - length)
    board[first : first + length] = "A" * length
    letters = rng.sample(LETTERS[1:], num_vehicles - 1)
    for letter in [*letters, *"x" * num_walls]:
        for _ in range(30):
            length = 1 if letter == "x" else rng.choice((2, 3))
            step, row, col = rng.choice((1, cols)), rng.randrange(rows), rng.randrange(cols)
            if (col + length > cols) if step == 1 else (row + length > rows):
                continue
            cells = [row * cols + col + step * place for place in range(length)]
            if all(board[cell] == "." for cell in cells):
                for cell in cells:
                    board[cell] = letter
                break
    if not size:
        return "".join(board)
    return "\n".join("".join(board[row * cols : (row + 1) * cols]) for row in range(rows))


def boards() -> st.SearchStrategy[str]:
    """Return a strategy of boards with 1 to 12 vehicles and up to 5 walls."""
    return st.builds(
        lambda seed, vehicles, walls: random_board(seed, num_vehicles=vehicles, num_walls=walls),
        st.integers(0, 2**32),
        st.integers(1, 12),
        st.integers(0, 5),
    )


def relabelled(board: str, seed: int) -> str:
    """Return the board with other letters for all vehicles but the red car."""
    others = [*LETTERS[1:]]
    random.Random(seed).shuffle(others)
    return board.translate(str.maketrans(LETTERS[1:], "".join(others)))
