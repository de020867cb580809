"""Sokoban rooms as text, for tests: random ones of any shape, dead starts too; a very long one."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st

FIXED = settings(derandomize=True, max_examples=100)
"""Hypothesis without clocks and without luck."""
SIDES = (1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6)


def random_room(seed: int, *, num_boxes: int, max_floor: int) -> str:
    """Return a room of at most 6 x 6 cells with ``num_boxes + 1`` to ``max_floor`` open cells."""
    rng = random.Random(seed)
    while True:
        rows, cols = rng.choice(SIDES), rng.choice(SIDES)
        density = rng.uniform(0, 0.4)
        grid = [["#" if rng.random() < density else "_" for _ in range(cols)] for _ in range(rows)]
        floor = [(r, c) for r in range(rows) for c in range(cols) if grid[r][c] == "_"]
        if num_boxes < len(floor) <= max_floor:
            break
    for row, col in rng.sample(floor, num_boxes):
        grid[row][col] = "O"
    player, *boxes = rng.sample(floor, num_boxes + 1)
    for symbols, cells in (({"_": "P", "O": "S"}, [player]), ({"_": "X", "O": "*"}, boxes)):
        for row, col in cells:
            grid[row][col] = symbols[grid[row][col]]
    return "\n".join("".join(row) for row in grid)


def rooms() -> st.SearchStrategy[str]:
    """Return a strategy of rooms with 1 to 3 boxes."""
    return st.builds(
        lambda seed, boxes: random_room(seed, num_boxes=boxes, max_floor=24 - 4 * boxes),
        st.integers(0, 2**32),
        st.integers(1, 3),
    )


def symmetric_forms(text: str) -> list[str]:
    """Return the room turned by 0, 90, 180, 270 degrees, each also mirrored."""
    rows = text.split("\n")
    forms: list[str] = []
    for _ in range(4):
        rows = ["".join(row[i] for row in reversed(rows)) for i in range(len(rows[0]))]
        forms += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return forms


def long_way_round(*, num_stairs: int, num_folds: int) -> str:
    """Return a maze where N is large: one box goes down a staircase, two turns a stair.

    The box itself closes the way to the place from which it must be pushed next, around the corner
    ahead. So at each turn the player walks all around, through ``num_folds`` (even) long corridors
    below the stairs and up the left edge.
    """
    side = 4 * num_stairs
    open_cells = {(0, col) for col in range(-4, 1)}
    for top in range(0, side, 4):
        corner = top + 4
        open_cells |= {(top, top + i) for i in range(5)} | {(top + i, corner) for i in range(5)}
        open_cells |= {(top - 1, corner), *((top + i, corner + 1) for i in (-1, 0, 1))}
        if corner < side:
            open_cells |= {(corner, corner - 1), *((corner + 1, corner + i) for i in (-1, 0, 1))}
    bottom = side + 2 * num_folds + 2
    open_cells |= {(side + 1, side)} | {(row, -4) for row in range(bottom + 1)}
    for row in range(side + 2, bottom, 4):
        open_cells |= {(row + i, col) for i in (0, 2) for col in range(-2, side + 1)}
        open_cells |= {(row + 1, -2), (row + 3, side)}
    open_cells |= {(bottom, col) for col in range(-4, side + 1)}
    symbols = dict.fromkeys(open_cells, "_") | {(0, -1): "P", (0, 1): "X", (side - 1, side): "O"}
    return "\n".join(
        "".join(symbols.get((row, col), "#") for col in range(-4, side + 2))
        for row in range(-1, bottom + 1)
    )
