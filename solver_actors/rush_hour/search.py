"""Rush Hour by iterative deepening A*: one state's N without a table, within a node budget.

It needs next to no memory, so it serves where a component is too large for a table, and it checks
that a generated puzzle has the length it should have. ``V`` is the number of vehicles.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from cast_ray.games.rush_hour import RushHourState
from cast_ray.games.rush_hour_keys import (
    MAX_SLIDES,
    NO_KEY,
    NO_VEHICLE,
    Geometry,
    first_slot,
    geometry_of,
    keys_of,
    offset_of,
    write_slides,
)

MAX_LENGTH = 127
"""Longest solution that any search looks for; the longest known of a 6 x 6 board is 51."""

_CONFIRMATION_NODES = 100_000
_LONGER, _DEAD, _EXHAUSTED = -1, -2, -3
_NEVER = 1 << 20
"""A bound that no solution keeps."""
_MAX_SEEN = 1 << 20
"""Most states that a search remembers."""


class _Memory(NamedTuple):
    """What a search keeps. ``D`` slides deep; ``M``, a power of two, states remembered."""

    after: np.ndarray
    """``[D + 1, MAX_SLIDES]`` int64 keys after each slide from the states on the path."""
    movers: np.ndarray
    """``[D + 1, MAX_SLIDES]`` int8 vehicle of each slide."""
    num_slides: np.ndarray
    """``[D + 1]`` int64."""
    num_tried: np.ndarray
    """``[D + 1]`` int64."""
    seen_keys: np.ndarray
    """``[M]`` int64 one remembered state for each slot; a newer one takes its place."""
    seen_marks: np.ndarray
    """``[M]`` int32 when it was expanded: ``bound * (MAX_LENGTH + 1) + cost``."""


class Outcome(StrEnum):
    """What a bounded search found out."""

    EXACT = "exact"
    LONGER = "longer"
    """Any solution is longer than the limit; whether there is one stays open."""
    DEAD = "dead"
    """Proven: there is no solution of any length."""
    EXHAUSTED = "exhausted"
    """The node budget ended first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer of ``shortest_length``."""

    outcome: Outcome
    length: int
    """N in slides where the outcome is ``EXACT``, else -1."""


def shortest_length(state: RushHourState, *, max_length: int, node_budget: int) -> SearchResult:
    """Return N of a state, if it is at most ``max_length`` and the budget allows to find it.

    Args:
        state: any state.
        max_length: longest solution to look for, in slides, 0 to ``MAX_LENGTH``.
        node_budget: most states to visit, each at least once per iteration, >= 0.

    Raises:
        ValueError: ``max_length`` or ``node_budget`` is out of range.
    """
    if not 0 <= max_length <= MAX_LENGTH:
        raise ValueError(f"max_length must be 0 to {MAX_LENGTH}, got {max_length}")
    if node_budget < 0:
        raise ValueError(f"node_budget must be >= 0, got {node_budget}")
    key = keys_of([state], len(state.offsets))[0]
    found = _search(key, geometry_of(state.layout), max_length, node_budget)
    outcomes = {_LONGER: Outcome.LONGER, _DEAD: Outcome.DEAD, _EXHAUSTED: Outcome.EXHAUSTED}
    if found in outcomes:
        return SearchResult(outcome=outcomes[found], length=-1)
    return SearchResult(outcome=Outcome.EXACT, length=found)


def confirm_length(state: RushHourState, cost: float) -> None:
    """Hold the table's N of a start state against this search, as far as its budget goes.

    Raises:
        AssertionError: the two disagree.
    """
    if not cost <= MAX_LENGTH:
        return
    found = shortest_length(state, max_length=int(cost), node_budget=_CONFIRMATION_NODES)
    agree = found.outcome is Outcome.EXACT and found.length == cost
    assert agree or found.outcome is Outcome.EXHAUSTED, (
        f"the table says {cost:g} slides and the search {found} of {state}"
    )


@njit(cache=True)
def lower_bound(key: int, geometry: Geometry) -> int:
    """Return a number of slides that no solution undercuts; 0 exactly where the game is won.

    The red car moves, every vehicle in its way moves, and where such a vehicle is shut in on both
    sides, one of those that shut it in moves. These last are counted once for vehicles that have
    none of them in common. No vehicle is counted twice: those in the way stand on the exit's row,
    those that shut them in do not.
    """
    front = offset_of(key, 0) + geometry.lengths[0]
    if front == geometry.sides[0]:
        return 0
    way = _line_part(geometry, 0, front, geometry.sides[0])
    bound, counted = 1, 0
    for vehicle in range(1, len(geometry.lengths)):
        if geometry.bodies[vehicle, offset_of(key, vehicle)] & way:
            bound += 1
            wardens = _wardens(key, vehicle, geometry)
            if wardens and not wardens & counted:
                bound += 1
                counted |= wardens
    return bound


@njit(cache=True)
def _line_part(geometry: Geometry, vehicle: int, start: int, end: int) -> int:
    """Return the cells from ``start`` to before ``end`` of a vehicle's line."""
    cells = 0
    for place in range(start, end):
        cells |= geometry.line_bits[vehicle, place]
    return cells


@njit(cache=True)
def _wardens(key: int, shut_in: int, geometry: Geometry) -> int:
    """Return the vehicles, a bit each, one of which moves before another leaves the exit's row.

    0 where none needs to.
    """
    offset, length = offset_of(key, shut_in), geometry.lengths[shut_in]
    exit_row, wardens = geometry.exit_row, 0
    for goal in (exit_row - length, exit_row + 1):  # the nearest offsets off the row
        if goal < 0 or goal + length > geometry.sides[shut_in]:
            continue
        path = _line_part(geometry, shut_in, min(offset, goal), max(offset, goal) + length)
        path &= ~geometry.bodies[shut_in, offset]
        if path & geometry.walls:
            continue
        in_the_way = 0
        for vehicle in range(1, len(geometry.lengths)):
            if geometry.bodies[vehicle, offset_of(key, vehicle)] & path:
                in_the_way |= 1 << vehicle
        if not in_the_way:
            return 0
        wardens |= in_the_way
    return wardens


@njit(cache=True)
def _is_hopeless(key: int, geometry: Geometry) -> bool:
    """Return whether the lines alone prove that there is no solution."""
    front = offset_of(key, 0) + geometry.lengths[0]
    if _offsets_in_reach(key, 0, geometry)[1] + geometry.lengths[0] < geometry.sides[0]:
        return True
    way, exit_row = _line_part(geometry, 0, front, geometry.sides[0]), geometry.exit_row
    for vehicle in range(1, len(geometry.lengths)):
        if geometry.line_bits[vehicle, exit_row] & way:
            lowest, highest = _offsets_in_reach(key, vehicle, geometry)
            if highest <= exit_row < lowest + geometry.lengths[vehicle]:
                return True
    return False


@njit(cache=True)
def _offsets_in_reach(key: int, vehicle: int, geometry: Geometry) -> tuple[int, int]:
    """Return the least and largest offset that a vehicle can ever have.

    Vehicles on one line keep their order and walls stay; all others are taken to make room.
    """
    lengths, sides, line_bits, bodies, walls, _ = geometry
    line = line_bits[vehicle]
    mates = 0
    for mate in range(len(lengths)):
        if mate != vehicle and line_bits[mate, 0] == line[0] and line_bits[mate, 1] == line[1]:
            mates |= bodies[mate, offset_of(key, mate)]
    lowest = highest = offset_of(key, vehicle)
    for place in range(lowest - 1, -1, -1):
        if line[place] & walls:
            break
        lowest -= not line[place] & mates
    for place in range(highest + lengths[vehicle], sides[vehicle]):
        if line[place] & walls:
            break
        highest += not line[place] & mates
    return lowest, highest


@njit(cache=True)
def _search(start: int, geometry: Geometry, max_length: int, node_budget: int) -> int:
    """Return N, or ``_LONGER``, ``_DEAD`` or ``_EXHAUSTED``."""
    if _is_hopeless(start, geometry):
        return _DEAD
    num_remembered = 1
    while num_remembered < min(2 * node_budget, _MAX_SEEN):
        num_remembered *= 2
    memory = _Memory(
        np.empty((max_length + 1, MAX_SLIDES), np.int64),
        np.empty((max_length + 1, MAX_SLIDES), np.int8),
        np.empty(max_length + 1, np.int64),
        np.empty(max_length + 1, np.int64),
        np.full(num_remembered, NO_KEY),
        np.zeros(num_remembered, np.int32),
    )
    bound, nodes_left = lower_bound(start, geometry), node_budget
    while 0 < bound <= max_length:
        next_bound, nodes_left = _deepen(start, geometry, bound, nodes_left, memory)
        if next_bound == bound:
            return bound
        if nodes_left < 0:
            return _EXHAUSTED
        bound = next_bound
    if bound == 0:
        return 0
    return _DEAD if bound == _NEVER else _LONGER


@njit(cache=True)
def _deepen(
    start: int, geometry: Geometry, bound: int, nodes_left: int, memory: _Memory
) -> tuple[int, int]:
    """Look for a solution of ``bound`` slides, where it is known that none is shorter.

    A state seen before in this iteration, at no greater cost, is left out. So are slides of the
    vehicle that has just moved: the states that they lead to are siblings of this one.

    Returns:
        The next bound to try and the nodes that are left. The bound is the same if there is a
        solution, ``_NEVER`` if every path ends within it; a negative number of nodes says that
        the search was broken off.
    """
    after, movers, num_slides, num_tried, seen_keys, seen_marks = memory
    mark = bound * (MAX_LENGTH + 1)
    next_bound = _NEVER
    num_slides[0] = write_slides(start, geometry, NO_VEHICLE, after[0], movers[0])
    num_tried[0] = 0
    depth = 0
    while depth >= 0:
        tried = num_tried[depth]
        if tried == num_slides[depth]:
            depth -= 1
            continue
        num_tried[depth] += 1
        key, cost = after[depth, tried], depth + 1
        left = lower_bound(key, geometry)
        if cost + left > bound:
            next_bound = min(next_bound, cost + left)
            continue
        if left == 0:
            return bound, nodes_left
        slot = first_slot(seen_keys, key)
        if seen_keys[slot] == key and mark <= seen_marks[slot] <= mark + cost:
            continue
        seen_keys[slot], seen_marks[slot] = key, mark + cost
        nodes_left -= 1
        if nodes_left < 0:
            break
        num_slides[cost] = write_slides(
            key, geometry, movers[depth, tried], after[cost], movers[cost]
        )
        num_tried[cost] = 0
        depth = cost
    return next_bound, nodes_left
