"""Sokoban solved completely: one table of N for every player cell and box placement of a layout.

Letters: ``F`` floor cells (numbered in reading order), ``K`` boxes, ``B = C(F, K)`` box sets.
A box set ``c_0 < c_1 < …`` of floor numbers has the rank ``C(c_0, 1) + C(c_1, 2) + …``, which
numbers all sets without gaps. State ``rank * F + player`` holds N, or ``DEAD``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import comb

import numpy as np
from numba import njit

from cast_ray.errors import PuzzleError
from cast_ray.games.sokoban import Sokoban, SokobanLayout, SokobanState
from solver_actors.sokoban.bounds import find_neighbors, number_floor
from solver_actors.sokoban.search import SokobanSearchSolver
from solver_actors.solver import Solver, UnitMoveSolver, check_layout

DEAD = -1
DEFAULT_STATE_CAP = 2_000_000
_SOKOBAN = Sokoban()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SokobanTable:
    """N of every state of one layout, in read-only arrays that pickle without a copy."""

    shape: np.ndarray
    """``[2]`` int32 rows and columns."""
    targets: np.ndarray
    """``[K]`` int32 cells, ascending."""
    floor_numbers: np.ndarray
    """``[rows * cols]`` int32 number of the floor cell, -1 where a wall is."""
    binomials: np.ndarray
    """``[F + 1, K + 1]`` int64 binomial coefficients, for the rank of a box set."""
    costs: np.ndarray
    """``[B * F]`` int16 N, ``DEAD`` where it is infinite or the player would stand on a box."""

    @property
    def memory_bytes(self) -> int:
        """Return the size of all arrays."""
        arrays = (self.shape, self.targets, self.floor_numbers, self.binomials, self.costs)
        return sum(array.nbytes for array in arrays)


def build_table(state: SokobanState, *, state_cap: int = DEFAULT_STATE_CAP) -> SokobanTable:
    """Return the table of a state's layout: all box placements, not only those in reach.

    Args:
        state: any state of the layout.
        state_cap: largest allowed number of states, ``B * F``.

    Raises:
        PuzzleError: the layout has more states than that.
        OverflowError: a state needs more than 32,767 steps.
    """
    layout = state.layout
    num_floor, num_boxes = layout.walls.count(0), len(layout.targets)
    if _num_states(layout) > state_cap:
        raise PuzzleError(
            f"a {layout.rows} x {layout.cols} Sokoban board with {num_boxes} boxes on {num_floor} "
            f"floor cells has more states than the cap of {state_cap}: "
            "use a smaller board or raise state_cap"
        )
    floor_numbers = number_floor(layout)
    targets = np.array(layout.targets, np.int32)
    binomials = _binomials(num_floor, num_boxes)
    costs = _reverse_search(
        find_neighbors(floor_numbers.reshape(layout.rows, layout.cols), num_floor),
        _box_sets(num_floor, num_boxes, comb(num_floor, num_boxes)),
        binomials,
        floor_numbers[targets],
    )
    shape = np.array((layout.rows, layout.cols), np.int32)
    for array in (shape, targets, floor_numbers, binomials, costs):
        array.setflags(write=False)
    return SokobanTable(
        shape=shape,
        targets=targets,
        floor_numbers=floor_numbers,
        binomials=binomials,
        costs=costs,
    )


class SokobanSolver(UnitMoveSolver[SokobanState]):
    """Looks up costs and actions in the table of one layout."""

    game = _SOKOBAN

    def __init__(self, table: SokobanTable) -> None:
        self.table = table
        rows, cols = table.shape.tolist()
        self._layout = SokobanLayout(
            rows=rows,
            cols=cols,
            walls=(table.floor_numbers < 0).tobytes(),
            targets=tuple(table.targets.tolist()),
        )

    @property
    def memory_bytes(self) -> int:
        """Return the size of the table."""
        return self.table.memory_bytes

    def cost_to_go(self, states: Sequence[SokobanState]) -> np.ndarray:
        """Return ``[len(states)]`` float64 N in player steps; inf = dead. Never NaN.

        Raises:
            ValueError: a state belongs to another layout.
        """
        check_layout(_SOKOBAN, self._layout, states)
        num_boxes = len(self.table.targets)
        players = np.fromiter((state.player for state in states), np.int32, len(states))
        cells = chain.from_iterable(state.boxes for state in states)
        boxes = np.fromiter(cells, np.int32, len(states) * num_boxes)
        return _look_up(
            self.table.costs,
            self.table.floor_numbers,
            self.table.binomials,
            players,
            boxes.reshape(len(states), num_boxes),
        )


def solve_sokoban(state: SokobanState) -> Solver[SokobanState]:
    """Return the solver of a state's layout: its table, or a search where no table holds it.

    None does above ``DEFAULT_STATE_CAP``, and none in a maze where an N exceeds its 16 bits. Costs
    are exact either way; only a search can leave one unknown.
    """
    if _num_states(state.layout) > DEFAULT_STATE_CAP:
        return SokobanSearchSolver(state.layout)
    try:
        return SokobanSolver(build_table(state))
    except OverflowError:
        return SokobanSearchSolver(state.layout)


def _num_states(layout: SokobanLayout) -> int:
    """Return the size of a layout's table, ``B * F``."""
    num_floor = layout.walls.count(0)
    return comb(num_floor, len(layout.targets)) * num_floor


@njit(cache=True)
def _binomials(num_floor: int, num_boxes: int) -> np.ndarray:
    """Return ``[F + 1, K + 1]`` binomial coefficients."""
    table = np.zeros((num_floor + 1, num_boxes + 1), np.int64)
    table[:, 0] = 1
    for n in range(1, num_floor + 1):
        for k in range(1, num_boxes + 1):
            table[n, k] = table[n - 1, k - 1] + table[n - 1, k]
    return table


@njit(cache=True)
def _box_sets(num_floor: int, num_boxes: int, num_sets: int) -> np.ndarray:
    """Return ``[B, K]`` all box sets as ascending floor numbers, in order of rank."""
    box_sets = np.empty((num_sets, num_boxes), np.int32)
    current = np.arange(num_boxes)
    for rank in range(num_sets):
        box_sets[rank] = current
        grown = 0
        while grown + 1 < num_boxes and current[grown] + 1 == current[grown + 1]:
            grown += 1
        current[grown] += 1
        current[:grown] = np.arange(grown)
    return box_sets


@njit(cache=True)
def _rank_after_move(boxes: np.ndarray, moved: int, destination: int, binomials: np.ndarray) -> int:
    """Return the rank of ``boxes`` ``[K]`` with the box number ``moved`` at ``destination``."""
    rank, place, is_placed = 0, 1, False
    for box in range(len(boxes)):
        if box == moved:
            continue
        if not is_placed and destination < boxes[box]:
            rank += binomials[destination, place]
            place += 1
            is_placed = True
        rank += binomials[boxes[box], place]
        place += 1
    if not is_placed:
        rank += binomials[destination, place]
    return rank


@njit(cache=True)
def _index_of(boxes: np.ndarray, cell: int) -> int:
    """Return which box of ``[K]`` stands on a floor cell, -1 for none."""
    for box in range(len(boxes)):
        if boxes[box] == cell:
            return box
    return -1


@njit(cache=True)
def _reverse_search(
    neighbors: np.ndarray, box_sets: np.ndarray, binomials: np.ndarray, targets: np.ndarray
) -> np.ndarray:
    """Return ``[B * F]`` int16 N by breadth-first search backwards from every solved state.

    Backwards, a player who stands on ``here`` came from ``origin``; if a box is on the far side of
    ``here``, it may have stood on ``here`` before and have been pushed.
    """
    num_floor = len(neighbors)
    costs = np.full(len(box_sets) * num_floor, DEAD, np.int16)
    queue = np.empty(len(costs), np.int32)
    length = 0
    solved = _rank_after_move(targets, len(targets) - 1, targets[-1], binomials)
    for player in range(num_floor):
        if _index_of(box_sets[solved], player) < 0:
            costs[solved * num_floor + player] = 0
            queue[length] = solved * num_floor + player
            length += 1
    head = 0
    while head < length:
        rank, here = divmod(queue[head], num_floor)
        cost = costs[queue[head]] + 1
        head += 1
        if cost > 32767:
            raise OverflowError("a Sokoban state needs more than 32767 steps")
        boxes = box_sets[rank]
        for direction in range(4):
            origin = neighbors[here, direction ^ 1]
            if origin < 0 or _index_of(boxes, origin) >= 0:
                continue
            walked = rank * num_floor + origin
            if costs[walked] == DEAD:
                costs[walked] = cost
                queue[length] = walked
                length += 1
            ahead = neighbors[here, direction]
            box = _index_of(boxes, ahead) if ahead >= 0 else -1
            if box < 0:
                continue
            pushed = _rank_after_move(boxes, box, here, binomials) * num_floor + origin
            if costs[pushed] == DEAD:
                costs[pushed] = cost
                queue[length] = pushed
                length += 1
    return costs


@njit(cache=True)
def _look_up(
    costs: np.ndarray,
    floor_numbers: np.ndarray,
    binomials: np.ndarray,
    players: np.ndarray,
    boxes: np.ndarray,
) -> np.ndarray:
    """Return ``[n]`` float64 N of the states with ``players`` ``[n]`` and ``boxes`` ``[n, K]``."""
    num_floor = len(binomials) - 1
    found = np.empty(len(players), np.float64)
    for i in range(len(players)):
        rank = 0
        for box in range(boxes.shape[1]):
            rank += binomials[floor_numbers[boxes[i, box]], box + 1]
        cost = costs[rank * num_floor + floor_numbers[players[i]]]
        found[i] = np.inf if cost == DEAD else cost
    return found
