"""What is known of a Sokoban position without a search: a lower bound of N, and proofs of death.

The bound is the least number of pushes that take every box to its own target if each were
alone in the room: no push brings a box nearer than by one, and no step pushes two boxes. It never
overestimates, and a step lowers it by one at most (it is consistent).

The player's way to a box off target is *not* added: the first box to be pushed may stand on a
target (to make room for another), and pushing it brings the player nearer at no extra cost.
Letters: ``F`` floor cells, ``K`` boxes.

The floor of a Sokoban room as a graph: what the table and the search both stand on.

Letters: ``F`` floor cells, numbered in reading order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from cast_ray.games.sokoban import SokobanLayout, SokobanState
from solver_actors.sokoban.assignment import IMPOSSIBLE, assign_all, total_cost


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


DEAD_BOUND = -1
"""In place of a bound: no sequence of actions solves this position, which is proven."""


class Room(NamedTuple):
    """What the kernels need of a layout."""

    neighbors: np.ndarray
    """``[F, 4]`` int32 floor numbers above, below, left, right; -1 = wall."""
    distances: np.ndarray
    """``[F, K]`` int32 pushes of a lone box from a cell to a target, or ``IMPOSSIBLE``."""
    is_target: np.ndarray
    """``[F]`` bool."""
    is_live: np.ndarray
    """``[F]`` bool whether a lone box can be pushed from the cell to any target."""


def survey(layout: SokobanLayout, *, with_distances: bool) -> Room:
    """Return the room of a layout; without distances, they are ``[F, 0]``."""
    floor_numbers = number_floor(layout)
    num_floor = int(floor_numbers.max()) + 1
    targets = floor_numbers[np.array(layout.targets)]
    neighbors = find_neighbors(floor_numbers.reshape(layout.rows, layout.cols), num_floor)
    is_target = np.zeros(num_floor, np.bool_)
    is_target[targets] = True
    sources = [targets[[number]] for number in range(len(targets) if with_distances else 0)]
    columns = [push_distances(neighbors, source) for source in sources]
    return Room(
        neighbors=neighbors,
        distances=np.stack(columns, axis=1) if columns else np.zeros((num_floor, 0), np.int32),
        is_target=is_target,
        is_live=push_distances(neighbors, targets) < IMPOSSIBLE,
    )


def sokoban_loss_test(state: SokobanState) -> Callable[[SokobanState], bool]:
    """Return a test that proves states of a layout lost by ``is_stuck`` alone."""
    layout = state.layout
    room, floor_numbers = survey(layout, with_distances=False), number_floor(layout)
    holds = np.zeros(len(room.neighbors), np.bool_)

    def is_lost(state: SokobanState) -> bool:
        return bool(is_stuck(room, floor_numbers[np.array(state.boxes)], holds))

    return is_lost


@njit(cache=True)
def push_distances(neighbors: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return ``[F]`` int32 pushes of a lone box from each cell to the nearest of ``targets``.

    Searched by pulls from the targets: a box came to ``here`` from ``before`` if the player had
    room behind it. Whether the player could get there is not asked, which only makes it less.
    """
    distances = np.full(len(neighbors), IMPOSSIBLE, np.int32)
    queue = np.empty(len(neighbors), np.int32)
    length = 0
    for target in targets:
        distances[target] = 0
        queue[length] = target
        length += 1
    head = 0
    while head < length:
        here = queue[head]
        head += 1
        for direction in range(4):
            before = neighbors[here, direction]
            if before < 0 or neighbors[before, direction] < 0 or distances[before] < IMPOSSIBLE:
                continue
            distances[before] = distances[here] + 1
            queue[length] = before
            length += 1
    return distances


@njit(cache=True)
def lower_bound(room: Room, boxes: np.ndarray) -> int:
    """Return the least number of pushes left for ``boxes`` ``[K]``, or ``DEAD_BOUND``."""
    if is_stuck(room, boxes, np.zeros(len(room.neighbors), np.bool_)):
        return DEAD_BOUND
    costs = room.distances[boxes]
    assignment, _ = assign_all(costs)
    bound = total_cost(costs, assignment)
    return bound if bound < IMPOSSIBLE else DEAD_BOUND


@njit(cache=True)
def is_stuck(room: Room, boxes: np.ndarray, holds: np.ndarray) -> bool:
    """Return whether a box off target can provably never be brought to one.

    That is so on a cell without a way to any target, and for boxes that hold each other: take all
    boxes; release each that has two cells in a line next to it without a wall or a box that still
    holds (one of them at least live), until none goes. The first of the rest to move would need
    such a line, and had none; so none of them ever moves, unless onto a cell that is not live.

    Args:
        room: the room.
        boxes: ``[K]`` cells.
        holds: ``[F]`` bool, all False, and so again at the end.
    """
    for box in boxes:
        holds[box] = True
    lets_go = True
    while lets_go:
        lets_go = False
        for box in boxes:
            if holds[box] and (_has_way(room, box, 0, holds) or _has_way(room, box, 2, holds)):
                holds[box] = False
                lets_go = True
    found = False
    for box in boxes:
        if not room.is_live[box] or (holds[box] and not room.is_target[box]):
            found = True
        holds[box] = False
    return found


@njit(cache=True)
def _has_way(room: Room, box: int, axis: int, holds: np.ndarray) -> bool:
    """Return whether a box might be pushed along an axis: 0 up and down, 2 left and right."""
    one, other = room.neighbors[box, axis], room.neighbors[box, axis + 1]
    if one < 0 or other < 0 or holds[one] or holds[other]:
        return False
    return bool(room.is_live[one] or room.is_live[other])
