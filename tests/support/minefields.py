"""Random Minesweeper boards as text, for tests: any shape, any safe cells open, flags anywhere.

Cells are opened one by one, so an open 0 may stand beside closed cells, as it does where a flag
has been lifted. Made without the rules of the game.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st

SIDES = (1, 2, 3, 3, 4, 4, 5)


def random_board(seed: int, *, max_hidden: int, sides: tuple[int, ...] = SIDES) -> str:
    """Return a board that is not lost, with at most ``max_hidden`` hidden cells."""
    rng = random.Random(seed)
    while True:
        rows, cols = rng.choice(sides), rng.choice(sides)
        cells = [(r, c) for r in range(rows) for c in range(cols)]
        num_mines = int(len(cells) * rng.choice((0.1, 0.2, 0.3, 0.5)))
        mines = set(rng.sample(cells, num_mines))
        counts = {
            (r, c): len(mines & {(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)})
            for r, c in cells
        }
        opens_zeros = rng.random() < 0.7
        share = rng.random()
        is_open = {
            cell
            for cell in cells
            if cell not in mines and (rng.random() < share or (opens_zeros and not counts[cell]))
        }
        if len(cells) - len(is_open) <= max_hidden:
            break
    flags = {cell for cell in cells if cell not in is_open and rng.random() < 0.1}
    text = {
        cell: str(counts[cell]) if cell in is_open else (".+", "fF")[cell in flags][cell in mines]
        for cell in cells
    }
    return "\n".join("".join(text[r, c] for c in range(cols)) for r in range(rows))


def boards(max_hidden: int = 25) -> st.SearchStrategy[str]:
    """Return a strategy of boards of at most 5 x 5 cells."""
    return st.builds(lambda seed: random_board(seed, max_hidden=max_hidden), st.integers(0, 2**32))
