"""Exact minimum-cost assignment as kernels, one row at a time, so that one changed row is cheap.

The Hungarian method with potentials: reduced costs ``costs[i, j] - rows[i] - columns[j]`` are
never negative and zero where row i has column j. Letters: ``K`` rows and columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

IMPOSSIBLE = 1 << 20
"""A cost that no assignment may contain; a sum that reaches it contains one."""
_INFINITY = 1 << 60


class Assignment(NamedTuple):
    """A partial assignment of least cost, with the potentials that prove it. Kernels change it."""

    rows: np.ndarray
    """``[K]`` int64 potential of each row."""
    columns: np.ndarray
    """``[K]`` int64 potential of each column."""
    row_of: np.ndarray
    """``[K]`` int64 row that has the column, -1 = free."""


@njit(cache=True)
def assign_all(costs: np.ndarray) -> tuple[Assignment, int]:
    """Return an assignment of least cost for ``costs`` ``[K, K]``, and the entries it read."""
    size = len(costs)
    assignment = Assignment(
        np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, -1, np.int64)
    )
    work = 0
    for row in range(size):
        work += assign_row(costs, row, assignment)
    return assignment, work


@njit(cache=True)
def reassign_row(costs: np.ndarray, row: int, assignment: Assignment) -> tuple[Assignment, int]:
    """Return the assignment after the costs of one row changed, and the entries it read.

    Args:
        costs: ``[K, K]`` with the row's new costs.
        row: the row.
        assignment: of least cost before the change; left as it is.
    """
    changed = Assignment(
        assignment.rows.copy(), assignment.columns.copy(), assignment.row_of.copy()
    )
    for column in range(len(costs)):
        if changed.row_of[column] == row:
            changed.row_of[column] = -1
    return changed, assign_row(costs, row, changed)


@njit(cache=True)
def assign_row(costs: np.ndarray, row: int, assignment: Assignment) -> int:
    """Give a row without a column one, along the cheapest alternating path; return its work.

    Args:
        costs: ``[K, K]`` integers, ``IMPOSSIBLE`` where a row must not have a column.
        row: the row; its potential may be anything.
        assignment: the others keep columns, if not the same ones.

    Returns:
        The number of entries of ``costs`` that were read.
    """
    size = len(costs)
    rows, columns, row_of = assignment
    slack = np.full(size, _INFINITY, np.int64)
    came_from = np.full(size, -1, np.int64)
    is_reached = np.zeros(size, np.bool_)
    last, here, work = -1, row, 0
    while True:
        nearest = -1
        for column in range(size):
            if is_reached[column]:
                continue
            reduced = costs[here, column] - rows[here] - columns[column]
            if reduced < slack[column]:
                slack[column] = reduced
                came_from[column] = last
            if nearest < 0 or slack[column] < slack[nearest]:
                nearest = column
        step = slack[nearest]
        rows[row] += step
        for column in range(size):
            if is_reached[column]:
                rows[row_of[column]] += step
                columns[column] -= step
            else:
                slack[column] -= step
        work += size
        is_reached[nearest] = True
        last, here = nearest, row_of[nearest]
        if here < 0:
            break
    while last >= 0:
        before = came_from[last]
        row_of[last] = row_of[before] if before >= 0 else row
        last = before
    return work


@njit(cache=True)
def total_cost(costs: np.ndarray, assignment: Assignment) -> int:
    """Return the sum of an assignment; at least ``IMPOSSIBLE`` if it contains one."""
    total = 0
    for column in range(len(costs)):
        total += costs[assignment.row_of[column], column]
    return total
