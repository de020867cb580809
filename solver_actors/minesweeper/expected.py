"""Minesweeper's credit apart from luck: what a move earns on average over the possible mines.

The possible layouts are all with the known number of mines that agree with what was open before
the move, each as likely. They are all asked where they are few; otherwise some are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from cast_ray.algorithms.advantages import drop_in_cost
from cast_ray.errors import PuzzleError
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.minesweeper_board import MinesweeperState
from cast_ray.games.text import neighbors
from cast_ray.seeds import derive_seed
from solver_actors.minesweeper.solver import MinesweeperSolver

MOST_LAYOUTS = 2300
"""With more, ``DRAWS`` of them are drawn: the mini tier has at most 2,300 (3 mines in 25 cells)."""
DRAWS = 200
_MOST_FRONTIERS = 200_000
_MINESWEEPER = Minesweeper()


class ExpectedCredit(NamedTuple):
    """A mean over layouts."""

    mean: float
    """In reveals."""
    standard_error: float
    """0 where all layouts were asked."""
    num_layouts: int
    """That agree with what was open."""


def expected_credit(
    state: MinesweeperState,
    action: str,
    *,
    rescue: str,
    most: int = MOST_LAYOUTS,
    draws: int = DRAWS,
) -> ExpectedCredit:
    """Return what a move earns (``advantages.drop_in_cost``), the mean over the possible layouts.

    Equal questions are answered alike: the drawn layouts follow from what is open and the move.

    Args:
        state: before the move; of its mines only the open numbers and their count are read.
        action: in canonical spelling.
        rescue: as in ``drop_in_cost``.
        most: layouts that are all asked.
        draws: of more.

    Raises:
        PuzzleError: the layouts are too many to count, or the solver has no answer on one.
    """
    frontiers, mines_inside, inside = _frontiers(state)
    ways = [comb(len(inside), int(left)) for left in mines_inside]
    total = sum(ways)
    if total <= most:
        masks = _all_layouts(frontiers, mines_inside, inside)
    else:
        visible = "\n".join(_MINESWEEPER.visible_rows(state))
        rng = np.random.default_rng(derive_seed(0, "layouts", visible, action))
        chances = np.array([way / total for way in ways])
        masks = (
            int(frontiers[row]) | _union(rng.choice(inside, int(mines_inside[row]), replace=False))
            for row in rng.choice(len(ways), draws, p=chances / chances.sum())
        )
    credits = np.array([_credit(state, action, mines, rescue) for mines in masks])
    if np.isnan(credits).any():
        raise PuzzleError("the solver's search budget is too small for a possible layout")
    error = 0.0 if total <= most else float(credits.std(ddof=1) / np.sqrt(draws))
    return ExpectedCredit(float(credits.mean()), error, total)


def _credit(state: MinesweeperState, action: str, mines: int, rescue: str) -> float:
    """Return what the move earns if these are the mines; NaN = unknown."""
    layout = replace(state.layout, mines=mines)
    before = replace(state, layout=layout)
    after = _MINESWEEPER.apply(before, action).state
    costs = MinesweeperSolver(layout).cost_to_go([before, after])
    won = _MINESWEEPER.rescue_value(_MINESWEEPER.encode(before))
    return float(drop_in_cost(costs[:1], costs[1:], rescue=rescue, win_from_infinite=won)[0])


def _frontiers(state: MinesweeperState) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the mines that hidden cells beside open ones can hold, and what is left for the rest.

    Returns:
        ``[S]`` uint64 sets of mines beside open cells; ``[S]`` mines left for the cells inside;
        those cells.
    """
    layout = state.layout
    num_cells = layout.rows * layout.cols
    around = neighbors(layout.rows, layout.cols)
    hidden = ((1 << num_cells) - 1) & ~state.revealed
    solutions, decided = np.zeros(1, np.uint64), 0
    for cell in range(num_cells):
        beside = around[cell] & hidden
        if not state.revealed >> cell & 1 or not beside:
            continue
        parts = _subsets(beside & ~decided)
        solutions = (solutions[:, None] | parts[None, :]).ravel()
        counts = np.bitwise_count(solutions & np.uint64(beside))
        solutions = solutions[counts == (around[cell] & layout.mines).bit_count()]
        decided |= beside
        if len(solutions) > _MOST_FRONTIERS:
            raise PuzzleError("too many layouts agree with what is open to count them")
    inside = [cell for cell in range(num_cells) if (hidden & ~decided) >> cell & 1]
    left = layout.mines.bit_count() - np.bitwise_count(solutions).astype(np.int64)
    fits = (left >= 0) & (left <= len(inside))
    return solutions[fits], left[fits], inside


def _all_layouts(frontiers: np.ndarray, left: np.ndarray, inside: list[int]) -> Iterator[int]:
    for mines, count in zip(frontiers.tolist(), left.tolist(), strict=True):
        for chosen in combinations(inside, count):
            yield mines | _union(chosen)


def _subsets(cells: int) -> np.ndarray:
    """Return all subsets of a set of cells."""
    found = np.zeros(1, np.uint64)
    while cells:
        lowest = cells & -cells
        found = np.concatenate([found, found | np.uint64(lowest)])
        cells -= lowest
    return found


def _union(cells: object) -> int:
    mines = 0
    for cell in np.asarray(cells, dtype=np.int64).tolist():
        mines |= 1 << cell
    return mines
