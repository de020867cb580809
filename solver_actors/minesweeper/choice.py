"""The next cell of the peek-free Minesweeper solver, as numba kernels.

The true mines of the layout serve twice, and neither lets the solver peek: as the source of the
open numbers, and as one solution of the constraints that need not be searched for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from solver_actors.minesweeper.constraints import (
    NONE,
    ONE,
    Frontier,
    MineBoard,
    bit,
    constrain,
    form_groups,
    lowest,
    new_frontier,
    popcount,
    preferred,
    score,
    without,
)
from solver_actors.minesweeper.probability import MineCounts, PartCounts, count_layouts, count_parts
from solver_actors.minesweeper.search import (
    EXHAUSTED,
    OUT_OF_BUDGET,
    Search,
    begin,
    new_search,
    next_solution,
    order_component,
)

NO_CELL, UNKNOWN = -1, -2


class Work(NamedTuple):
    """Room for one position, used again for the next."""

    frontier: Frontier
    search: Search


@njit(cache=True)
def new_work(node_budget: int) -> Work:
    """Return room, with a budget of search nodes for each position."""
    return Work(new_frontier(), new_search(node_budget))


@njit(cache=True)
def choose(board: MineBoard, revealed: np.uint64, work: Work) -> tuple[int, bool]:
    """Return the cell that the solver reveals next, and whether it may be a mine.

    Args:
        board: the layout.
        revealed: the open cells of an undecided game.
        work: room, and the budget.

    Returns:
        The cell, or ``UNKNOWN`` out of budget; True for a guess.
    """
    work.search.nodes_left[0] = work.search.node_budget
    num_constraints, safe, mined = constrain(board, revealed, work.frontier)
    cell = _entailed(board, revealed, safe, num_constraints, work)
    if cell != NO_CELL:
        return cell, False
    return _least_likely(board, revealed, mined, num_constraints, work)


@njit(cache=True)
def _entailed(
    board: MineBoard,
    revealed: np.uint64,
    safe: np.uint64,
    num_constraints: int,
    work: Work,
) -> int:
    """Return the entailed safe cell of the largest score, ``NO_CELL`` if none, or ``UNKNOWN``.

    Only cells that would be preferred to the best of ``safe`` are searched. A cell is entailed
    safe if no solution has a mine there; a group with a mine in truth has such a solution.
    """
    frontier, search = work
    best = lowest(preferred(board, revealed, safe)) if safe else NO_CELL
    challengers = _better(board, revealed, frontier.cells[:num_constraints], best)
    if not challengers:
        return best
    num_groups = form_groups(frontier, num_constraints)
    for group in range(num_groups):
        if frontier.group_cells[group] & board.mines:
            challengers = without(challengers, frontier.group_cells[group])
    while challengers:
        cell = lowest(preferred(board, revealed, challengers))
        group = 0
        while not frontier.group_cells[group] & bit(cell):
            group += 1
        length = order_component(frontier, num_groups, group, search)
        begin(frontier, num_constraints, num_groups, search)
        outcome = next_solution(frontier, search, length, True, 1)
        if outcome == OUT_OF_BUDGET:
            return UNKNOWN
        if outcome == EXHAUSTED:
            return cell
        for place in range(length):
            if search.held[place]:
                group = int(search.order[place])
                challengers = without(challengers, frontier.group_cells[group])
    return best


@njit(cache=True)
def _better(board: MineBoard, revealed: np.uint64, sets: np.ndarray, best: int) -> np.uint64:
    """Return the cells without a mine in ``sets`` ``[n]`` that would be preferred to ``best``."""
    cells, found = NONE, NONE
    for i in range(len(sets)):
        cells |= sets[i]
    cells &= ~board.mines
    if best == NO_CELL:
        return cells
    to_beat = score(board, revealed, best)
    while cells:
        cell = lowest(cells)
        cells &= cells - ONE
        value = score(board, revealed, cell)
        if value > to_beat or (value == to_beat and cell < best):
            found |= bit(cell)
    return found


@njit(cache=True)
def _least_likely(
    board: MineBoard,
    revealed: np.uint64,
    mined: np.uint64,
    num_constraints: int,
    work: Work,
) -> tuple[int, bool]:
    """Return the cell of least mine probability, by exact counts, and whether that is above 0."""
    frontier, search = work
    num_groups = form_groups(frontier, num_constraints)
    parts = count_parts(frontier, num_constraints, num_groups, search)
    if parts.num_parts < 0:
        return UNKNOWN, False
    undecided = board.all_cells & ~(revealed | mined)
    interior, counts = _count_all(board, undecided, mined, frontier, num_groups, parts)
    least, tied = counts.total, NONE
    for group in range(num_groups):
        if counts.of_group[group] < least:
            least, tied = counts.of_group[group], NONE
        if counts.of_group[group] == least:
            tied |= frontier.group_cells[group]
    if interior and counts.of_interior < least:
        least, tied = counts.of_interior, NONE
    if interior and counts.of_interior == least:
        tied |= interior
    tied = preferred(board, revealed, tied)
    if tied & (tied - ONE):
        num_left = _without_proven_mines(frontier, parts, num_constraints, num_groups)
        return _first_in_order(frontier, num_left, tied), bool(least > NONE)
    return lowest(tied), bool(least > NONE)


@njit(cache=True)
def _count_all(
    board: MineBoard,
    undecided: np.uint64,
    mined: np.uint64,
    frontier: Frontier,
    num_groups: int,
    parts: PartCounts,
) -> tuple[np.uint64, MineCounts]:
    """Return the undecided cells that no number touches, and the counts of the layouts."""
    interior = undecided
    for group in range(num_groups):
        interior = without(interior, frontier.group_cells[group])
    num_mines = popcount(board.mines) - popcount(mined)
    return interior, count_layouts(frontier, parts, popcount(interior), num_mines)


@njit(cache=True)
def _without_proven_mines(
    frontier: Frontier, parts: PartCounts, num_constraints: int, num_groups: int
) -> int:
    """Take groups that are mines in every solution out of the constraints; return how many stay."""
    mined = NONE
    for group in range(num_groups):
        size = np.uint64(frontier.sizes[group])
        ways = parts.ways[parts.part_of[group]]
        is_mined = True
        for held in range(len(ways)):
            is_mined = is_mined and parts.mine_ways[group, held] == size * ways[held]
        if is_mined:
            mined |= frontier.group_cells[group]
    num_left = 0
    for i in range(num_constraints):
        undecided = frontier.cells[i] & ~mined
        if undecided:
            frontier.cells[num_left] = undecided
            num_left += 1
    return num_left


@njit(cache=True)
def _first_in_order(frontier: Frontier, num_constraints: int, tied: np.uint64) -> int:
    """Return the first of ``tied`` by component, group and cell; the interior comes last.

    Components follow their first constraint, groups their smallest cell.
    """
    num_groups = form_groups(frontier, num_constraints)
    for first in range(num_constraints):
        part, before = frontier.cells[first], NONE
        while part != before:
            before = part
            for i in range(num_constraints):
                if frontier.cells[i] & part:
                    part |= frontier.cells[i]
        for group in range(num_groups):
            here = frontier.group_cells[group] & part & tied
            if here:
                return lowest(here)
    return lowest(tied)


@njit(cache=True)
def mine_counts(board: MineBoard, revealed: np.uint64, work: Work) -> tuple[np.uint64, np.ndarray]:
    """Return the number of layouts that agree with what is open, and those with a mine there.

    Returns:
        The number, 0 out of budget; ``[C]`` uint64, 0 at open cells.
    """
    frontier, search = work
    search.nodes_left[0] = search.node_budget
    counts = np.zeros(len(board.counts), np.uint64)
    num_constraints, safe, mined = constrain(board, revealed, frontier)
    num_groups = form_groups(frontier, num_constraints)
    parts = count_parts(frontier, num_constraints, num_groups, search)
    if parts.num_parts < 0:
        return NONE, counts
    undecided = board.all_cells & ~(revealed | mined | safe)
    interior, layouts = _count_all(board, undecided, mined, frontier, num_groups, parts)
    for cell in range(len(counts)):
        if mined & bit(cell):
            counts[cell] = layouts.total
        elif interior & bit(cell):
            counts[cell] = layouts.of_interior
    for group in range(num_groups):
        for cell in range(len(counts)):
            if frontier.group_cells[group] & bit(cell):
                counts[cell] = layouts.of_group[group]
    return layouts.total, counts
