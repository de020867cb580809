"""Solutions of Minesweeper constraints, counted by groups: how many mines each group holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from solver_actors.minesweeper.constraints import MAX_CELLS, NONE, ONE, Frontier, bit, lowest

FOUND, EXHAUSTED, OUT_OF_BUDGET = 1, 0, -1


class Search(NamedTuple):
    """A depth-first search over the groups of one component; entries beyond are junk."""

    order: np.ndarray
    """``[64]`` int64 groups in the order in which they are given mines."""
    held: np.ndarray
    """``[64]`` int64 mines given to the group at each place of the order."""
    most: np.ndarray
    """``[64]`` int64 most mines that the group can hold, given those before it."""
    need: np.ndarray
    """``[64]`` int64 mines that each constraint still lacks."""
    room: np.ndarray
    """``[64]`` int64 cells of each constraint in groups without their mines yet."""
    node_budget: int
    nodes_left: np.ndarray
    """``[1]`` int64 of the budget; reset for each new question."""


@njit(cache=True)
def new_search(node_budget: int) -> Search:
    """Return room for a search, and its budget."""
    return Search(
        np.empty(MAX_CELLS, np.int64),
        np.empty(MAX_CELLS, np.int64),
        np.empty(MAX_CELLS, np.int64),
        np.empty(MAX_CELLS, np.int64),
        np.empty(MAX_CELLS, np.int64),
        node_budget,
        np.full(1, node_budget, np.int64),
    )


@njit(cache=True)
def order_component(frontier: Frontier, num_groups: int, first: int, search: Search) -> int:
    """Put the component of a group in order, the group first; return its number of groups.

    Each next group shares a constraint with one before it, so a contradiction shows early.
    """
    search.order[0] = first
    length = 1
    reached = frontier.touches[first]
    waiting = NONE
    for group in range(num_groups):
        if group != first:
            waiting |= bit(group)
    is_grown = True
    while is_grown:
        is_grown = False
        rest = waiting
        while rest:
            group = lowest(rest)
            rest &= rest - ONE
            if frontier.touches[group] & reached:
                reached |= frontier.touches[group]
                search.order[length] = group
                length += 1
                waiting &= ~bit(group)
                is_grown = True
    return length


@njit(cache=True)
def begin(frontier: Frontier, num_constraints: int, num_groups: int, search: Search) -> None:
    """Set every constraint back to what it lacks before any group has its mines."""
    for i in range(num_constraints):
        search.need[i] = frontier.need[i]
        search.room[i] = 0
    for group in range(num_groups):
        rest = frontier.touches[group]
        while rest:
            search.room[lowest(rest)] += frontier.sizes[group]
            rest &= rest - ONE


@njit(cache=True)
def _give(frontier: Frontier, search: Search, group: int, mines: int, cells: int) -> None:
    """Note in its constraints that a group got mines, and how many cells are decided."""
    rest = frontier.touches[group]
    while rest:
        i = lowest(rest)
        rest &= rest - ONE
        search.need[i] -= mines
        search.room[i] -= cells


@njit(cache=True)
def next_solution(
    frontier: Frontier, search: Search, length: int, is_first: bool, least: int
) -> int:
    """Advance to the next solution of the component in ``order``.

    Args:
        frontier: constraints and groups.
        search: after ``begin``; holds the solution found in ``held``, by place in the order.
        length: number of groups in the order.
        is_first: start the search instead of going on from the last solution.
        least: mines that the first group holds at least.

    Returns:
        ``FOUND``, ``EXHAUSTED`` or ``OUT_OF_BUDGET``.
    """
    depth = 0 if is_first else length
    is_forward = is_first
    while True:
        if is_forward and depth < length:
            search.nodes_left[0] -= 1
            if search.nodes_left[0] < 0:
                return OUT_OF_BUDGET
            group = int(search.order[depth])
            size = int(frontier.sizes[group])
            fewest, most = least if depth == 0 else 0, size
            rest = frontier.touches[group]
            while rest:
                i = lowest(rest)
                rest &= rest - ONE
                most = min(most, search.need[i])
                fewest = max(fewest, search.need[i] - search.room[i] + size)
            is_forward = fewest <= most
            if is_forward:
                _give(frontier, search, group, fewest, size)
                search.held[depth], search.most[depth] = fewest, most
                depth += 1
            continue
        if is_forward:
            return FOUND
        depth -= 1
        if depth < 0:
            return EXHAUSTED
        group = int(search.order[depth])
        if search.held[depth] < search.most[depth]:
            search.held[depth] += 1
            _give(frontier, search, group, 1, 0)
            depth += 1
            is_forward = True
        else:
            _give(frontier, search, group, -search.held[depth], -frontier.sizes[group])
