"""What the open numbers of a Minesweeper board say, as numba kernels on sets of cells.

A set of cells is a uint64, bit ``row * cols + column``; a *constraint* is an open number with the
cells around it that are undecided; a *group* is a set of cells with the same constraints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

MAX_CELLS = 64
ONE = np.uint64(1)
NONE = np.uint64(0)
_PAIRS = np.uint64(0x5555555555555555)
_FOURS = np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
_SUM = np.uint64(0x0101010101010101)


class MineBoard(NamedTuple):
    """One layout, as the kernels read it. ``C`` is the number of its cells."""

    all_cells: np.uint64
    mines: np.uint64
    zeros: np.uint64
    """Safe cells without a mine around them."""
    neighbors: np.ndarray
    """``[C]`` uint64 cells around each cell."""
    counts: np.ndarray
    """``[C]`` int64 mines around each cell."""


class Frontier(NamedTuple):
    """The constraints of one position and its groups; entries beyond their number are junk."""

    cells: np.ndarray
    """``[64]`` uint64 undecided cells of each constraint, constraints in reading order."""
    need: np.ndarray
    """``[64]`` int64 mines among them."""
    group_cells: np.ndarray
    """``[64]`` uint64 cells of each group, groups by their smallest cell."""
    touches: np.ndarray
    """``[64]`` uint64 constraints of each group."""
    sizes: np.ndarray
    """``[64]`` int64 number of cells of each group."""


@njit(cache=True)
def new_frontier() -> Frontier:
    """Return room for one position."""
    return Frontier(
        np.empty(MAX_CELLS, np.uint64),
        np.empty(MAX_CELLS, np.int64),
        np.empty(MAX_CELLS, np.uint64),
        np.empty(MAX_CELLS, np.uint64),
        np.empty(MAX_CELLS, np.int64),
    )


@njit(cache=True)
def popcount(cells: np.uint64) -> int:
    """Return the size of a set; LLVM makes one instruction of it."""
    pairs = cells - ((cells >> ONE) & _PAIRS)
    fours = (pairs & _FOURS) + ((pairs >> np.uint64(2)) & _FOURS)
    eights = (fours + (fours >> np.uint64(4))) & _BYTES
    return int(np.int64((eights * _SUM) >> np.uint64(56)))


@njit(cache=True)
def lowest(cells: np.uint64) -> int:
    """Return the smallest member of a set that is not empty."""
    return popcount(~cells & (cells - ONE))


@njit(cache=True)
def bit(cell: int) -> np.uint64:
    """Return the set of one cell."""
    return ONE << np.uint64(cell)


@njit(cache=True)
def without(cells: np.uint64, others: np.uint64) -> np.uint64:
    """Return the cells that are not among the others."""
    return cells & ~others


@njit(cache=True)
def opened_by(board: MineBoard, revealed: np.uint64, cell: int) -> np.uint64:
    """Return what a reveal opens where no flag stands: from a 0 on, all closed cells around."""
    opened = bit(cell)
    unvisited = opened & board.zeros
    while unvisited:
        fresh = board.neighbors[lowest(unvisited)] & ~(revealed | opened)
        unvisited &= unvisited - ONE
        opened |= fresh
        unvisited |= fresh & board.zeros
    return opened


@njit(cache=True)
def constrain(
    board: MineBoard, revealed: np.uint64, frontier: Frontier
) -> tuple[int, np.uint64, np.uint64]:
    """Fill in the constraints that single numbers leave undecided.

    Args:
        board: the layout; of its mines only the open numbers are read.
        revealed: the open cells, none of them a mine.
        frontier: gets ``cells`` and ``need``.

    Returns:
        Number of constraints, cells that a chain of single numbers proves safe, and mined.
    """
    cells, need = frontier.cells, frontier.need
    closed = board.all_cells & ~revealed
    num_constraints = 0
    rest = revealed
    while rest:
        number = lowest(rest)
        rest &= rest - ONE
        around = board.neighbors[number] & closed
        if around:
            cells[num_constraints] = around
            need[num_constraints] = board.counts[number]
            num_constraints += 1
    safe, mined = NONE, NONE
    is_changed = True
    while is_changed:
        is_changed = False
        num_left = 0
        for i in range(num_constraints):
            missing = need[i] - popcount(cells[i] & mined)
            undecided = cells[i] & ~(safe | mined)
            if not undecided:
                continue
            if missing == 0:
                safe |= undecided
                is_changed = True
            elif missing == popcount(undecided):
                mined |= undecided
                is_changed = True
            else:
                cells[num_left] = undecided
                need[num_left] = missing
                num_left += 1
        num_constraints = num_left
    return num_constraints, safe, mined


@njit(cache=True)
def form_groups(frontier: Frontier, num_constraints: int) -> int:
    """Fill in the groups of the first ``num_constraints`` constraints; return their number."""
    undecided = NONE
    for i in range(num_constraints):
        undecided |= frontier.cells[i]
    num_groups = 0
    while undecided:
        first = undecided & (~undecided + ONE)
        together, touches = undecided, NONE
        for i in range(num_constraints):
            if frontier.cells[i] & first:
                together &= frontier.cells[i]
                touches |= bit(i)
            else:
                together &= ~frontier.cells[i]
        frontier.group_cells[num_groups] = together
        frontier.touches[num_groups] = touches
        frontier.sizes[num_groups] = popcount(together)
        num_groups += 1
        undecided &= ~together
    return num_groups


@njit(cache=True)
def score(board: MineBoard, revealed: np.uint64, cell: int) -> int:
    """Return the sum over the cells around: closed 1, open number above zero 2, open zero 3."""
    around = board.neighbors[cell]
    seen = around & revealed
    return popcount(around) + popcount(seen) + popcount(seen & board.zeros)


@njit(cache=True)
def preferred(board: MineBoard, revealed: np.uint64, cells: np.uint64) -> np.uint64:
    """Return the cells of the largest score."""
    best, found = -1, NONE
    while cells:
        cell = lowest(cells)
        cells &= cells - ONE
        value = score(board, revealed, cell)
        if value > best:
            best, found = value, NONE
        if value == best:
            found |= bit(cell)
    return found
