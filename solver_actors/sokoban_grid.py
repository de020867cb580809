"""The floor of a Sokoban room as a graph: what the table and the search both stand on.

Letters: ``F`` floor cells, numbered in reading order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cast_ray.games.sokoban import SokobanLayout


def number_floor(layout: SokobanLayout) -> np.ndarray:
    """Return ``[rows * cols]`` int32 number of the floor cell, -1 where a wall is."""
    is_floor = np.frombuffer(layout.walls, np.uint8) == 0
    return np.where(is_floor, np.cumsum(is_floor) - 1, -1).astype(np.int32)


@njit(cache=True)
def find_neighbors(floor_numbers: np.ndarray, num_floor: int) -> np.ndarray:
    """Return ``[F, 4]`` floor numbers above, below, left, right; -1 where a wall or the edge is.

    Args:
        floor_numbers: ``[rows, cols]`` as of ``number_floor``.
        num_floor: F.
    """
    rows, cols = floor_numbers.shape
    neighbors = np.full((num_floor, 4), -1, np.int32)
    for row in range(rows):
        for col in range(cols):
            here = floor_numbers[row, col]
            if here < 0:
                continue
            if row > 0:
                neighbors[here, 0] = floor_numbers[row - 1, col]
            if row + 1 < rows:
                neighbors[here, 1] = floor_numbers[row + 1, col]
            if col > 0:
                neighbors[here, 2] = floor_numbers[row, col - 1]
            if col + 1 < cols:
                neighbors[here, 3] = floor_numbers[row, col + 1]
    return neighbors
