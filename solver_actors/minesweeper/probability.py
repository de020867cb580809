"""How many mine layouts agree with what is open, and in how many of them each cell is a mine.

All counts are exact. A board has at most 64 cells, so no count of layouts exceeds
C(64, 32) < 2^61, and eight times that, the most a group's sum reaches, still fits into uint64.
Letters: ``G`` groups, ``P`` components (parts) of the constraints, ``M`` = 65 numbers of mines.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
from numba import njit

from solver_actors.minesweeper.constraints import MAX_CELLS, NONE, ONE, Frontier
from solver_actors.minesweeper.search import (
    FOUND,
    OUT_OF_BUDGET,
    Search,
    begin,
    next_solution,
    order_component,
)

BINOMIALS = np.array(
    [[comb(n, k) for k in range(MAX_CELLS + 1)] for n in range(MAX_CELLS + 1)], np.uint64
)
"""``[65, 65]`` ways to choose k of n."""


class PartCounts(NamedTuple):
    """The solutions of every component, by how many mines they hold."""

    num_parts: int
    part_of: np.ndarray
    """``[G]`` int64 component of each group."""
    ways: np.ndarray
    """``[P, M]`` uint64 solutions of the component with M mines, cell by cell."""
    mine_ways: np.ndarray
    """``[G, M]`` uint64 the same, summed over the cells of the group that are mines in them."""


class MineCounts(NamedTuple):
    """Of the layouts that agree with what is open, those in which a cell is a mine."""

    total: np.uint64
    """Number of layouts; 0 where the search ran out of its budget."""
    of_group: np.ndarray
    """``[G]`` uint64 for one cell of each group."""
    of_interior: np.uint64
    """For one closed cell without an open neighbor; 0 where there is none."""


@njit(cache=True)
def count_parts(
    frontier: Frontier, num_constraints: int, num_groups: int, search: Search
) -> PartCounts:
    """Enumerate the solutions of all components; ``num_parts`` is -1 out of budget."""
    part_of = np.full(num_groups, -1, np.int64)
    ways = np.zeros((max(num_groups, 1), MAX_CELLS + 1), np.uint64)
    mine_ways = np.zeros((num_groups, MAX_CELLS + 1), np.uint64)
    begin(frontier, num_constraints, num_groups, search)
    num_parts = 0
    for first in range(num_groups):
        if part_of[first] >= 0:
            continue
        length = order_component(frontier, num_groups, first, search)
        for place in range(length):
            part_of[search.order[place]] = num_parts
        outcome = next_solution(frontier, search, length, True, 0)
        while outcome == FOUND:
            _add_solution(frontier, search, length, ways[num_parts], mine_ways)
            outcome = next_solution(frontier, search, length, False, 0)
        if outcome == OUT_OF_BUDGET:
            return PartCounts(-1, part_of, ways, mine_ways)
        num_parts += 1
    return PartCounts(num_parts, part_of, ways, mine_ways)


@njit(cache=True)
def _add_solution(
    frontier: Frontier, search: Search, length: int, ways: np.ndarray, mine_ways: np.ndarray
) -> None:
    """Add one solution by groups, which represents many cell by cell."""
    num_mines = 0
    num_ways = ONE
    for place in range(length):
        held = search.held[place]
        num_mines += held
        num_ways *= BINOMIALS[frontier.sizes[search.order[place]], held]
    ways[num_mines] += num_ways
    for place in range(length):
        mine_ways[search.order[place], num_mines] += num_ways * np.uint64(search.held[place])


@njit(cache=True)
def count_layouts(
    frontier: Frontier, parts: PartCounts, num_interior: int, num_mines: int
) -> MineCounts:
    """Join the components and the interior under the number of mines of the board.

    Args:
        frontier: the groups.
        parts: their solutions.
        num_interior: closed cells without an open neighbor.
        num_mines: mines of the board that are not proven already.
    """
    of_group = np.zeros(len(parts.part_of), np.uint64)
    everything = _convolved(parts, -1)
    total, of_interior = NONE, NONE
    for held in range(min(num_mines, MAX_CELLS) + 1):
        left = num_mines - held
        if everything[held] and left <= num_interior:
            total += everything[held] * BINOMIALS[num_interior, left]
            if left > 0:
                of_interior += everything[held] * BINOMIALS[num_interior - 1, left - 1]
    for part in range(parts.num_parts):
        rest = _completions(_convolved(parts, part), num_interior, num_mines)
        for group in range(len(of_group)):
            if parts.part_of[group] != part:
                continue
            size = np.uint64(frontier.sizes[group])
            for held in range(num_mines + 1):
                of_group[group] += parts.mine_ways[group, held] // size * rest[held]
    return MineCounts(total, of_group, of_interior)


@njit(cache=True)
def _convolved(parts: PartCounts, left_out: int) -> np.ndarray:
    """Return ``[M]`` solutions of all components but one (-1 = none), by number of mines."""
    joined = np.zeros(MAX_CELLS + 1, np.uint64)
    joined[0] = ONE
    for part in range(parts.num_parts):
        if part == left_out:
            continue
        before = joined.copy()
        joined[:] = NONE
        for held in range(MAX_CELLS + 1):
            if not before[held]:
                continue
            for more in range(MAX_CELLS + 1 - held):
                joined[held + more] += before[held] * parts.ways[part, more]
    return joined


@njit(cache=True)
def _completions(others: np.ndarray, num_interior: int, num_mines: int) -> np.ndarray:
    """Return ``[M]`` ways to fill all other cells when one component holds M mines."""
    ways = np.zeros(MAX_CELLS + 1, np.uint64)
    for held in range(num_mines + 1):
        for more in range(num_mines - held + 1):
            left = num_mines - held - more
            if others[more] and left <= num_interior:
                ways[held] += others[more] * BINOMIALS[num_interior, left]
    return ways
