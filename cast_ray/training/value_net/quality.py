"""How good a teacher a value network is, compared with exact costs. NumPy and SciPy only.

Credit uses the change of value by a move, and V and N have different units. So the figures measure
order and sign, not size. None = a figure is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from cast_ray.statistics import Estimate, bootstrap

NUM_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedState:
    """An undecided state with the exact solver's costs and the network's values."""

    puzzle: int
    """Number of the puzzle: its states are alike, so intervals are over puzzles."""
    board: str
    cost: float
    """N, in moves; inf = infinite."""
    value: float
    """V."""
    actions: tuple[str, ...]
    """``[A]`` the scored ones."""
    costs_after: tuple[float, ...]
    """``[A]`` N after each."""
    values_after: tuple[float, ...]
    """``[A]`` V after each."""

    @property
    def network_choice(self) -> int:
        """Return the index of the first action with the largest value after it."""
        return int(np.argmax(self.values_after))


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherQuality:
    """The figures of the states of a set of puzzles."""

    num_states: int
    num_infinite: int
    num_unknown: int
    """States with an infinite or unknown cost are not in the figures below."""
    spearman: Estimate | None
    """Rank correlation of V with -N."""
    sign_agreement: Estimate | None
    """Of the moves that change a finite N, the share whose change of V has the right sign."""
    loss_agreement: Estimate | None
    """Share of moves from a finite N to an infinite one that lower V."""
    optimal_choice: Estimate | None
    """Share of states in which the move with the largest value after it is optimal."""


def teacher_quality(states: Sequence[JudgedState], *, seed: int) -> TeacherQuality:
    """Return all figures, with intervals from ``NUM_RESAMPLES`` draws of puzzles."""
    finite = [state for state in states if math.isfinite(state.cost)]
    return TeacherQuality(
        num_states=len(states),
        num_infinite=sum(math.isinf(state.cost) for state in states),
        num_unknown=sum(math.isnan(state.cost) for state in states),
        spearman=_estimate(spearman, finite, seed=seed),
        sign_agreement=_estimate(sign_agreement, finite, seed=seed),
        loss_agreement=_estimate(loss_agreement, finite, seed=seed),
        optimal_choice=_estimate(optimal_choice, finite, seed=seed),
    )


def by_distance(states: Sequence[JudgedState]) -> dict[int, tuple[JudgedState, ...]]:
    """Return the states of each finite cost, the nearest first."""
    costs = sorted({int(state.cost) for state in states if math.isfinite(state.cost)})
    return {cost: tuple(one for one in states if one.cost == cost) for cost in costs}


def spearman(states: Sequence[JudgedState]) -> float | None:
    """Return the rank correlation of V with -N; None if either is constant.

    Args:
        states: of finite cost.
    """
    if len({state.cost for state in states}) < 2 or len({state.value for state in states}) < 2:
        return None
    near = rankdata([-state.cost for state in states])
    return float(np.corrcoef(near, rankdata([state.value for state in states]))[0, 1])


def sign_agreement(states: Sequence[JudgedState]) -> float | None:
    """Return the share of right signs among moves from one finite N to another."""
    right = [
        (state.cost > cost) == (value > state.value) and value != state.value
        for state in states
        for cost, value in zip(state.costs_after, state.values_after, strict=True)
        if math.isfinite(cost) and cost != state.cost
    ]
    return float(np.mean(right)) if right else None


def loss_agreement(states: Sequence[JudgedState]) -> float | None:
    """Return the share of moves from a finite N to an infinite one that lower V."""
    right = [
        value < state.value
        for state in states
        for cost, value in zip(state.costs_after, state.values_after, strict=True)
        if math.isinf(cost)
    ]
    return float(np.mean(right)) if right else None


def optimal_choice(states: Sequence[JudgedState]) -> float | None:
    """Return the share of states in which the network chooses a move with the least N after it."""
    right = [
        state.costs_after[state.network_choice] == min(state.costs_after)
        for state in states
        if state.actions
    ]
    return float(np.mean(right)) if right else None


def _estimate(
    figure: Callable[[Sequence[JudgedState]], float | None],
    states: Sequence[JudgedState],
    *,
    seed: int,
) -> Estimate | None:
    found = figure(states)
    if found is None:
        return None
    of_puzzle: dict[int, list[JudgedState]] = {}
    for state in states:
        of_puzzle.setdefault(state.puzzle, []).append(state)
    groups = list(of_puzzle.values())

    def of_draws(draws: np.ndarray) -> np.ndarray:
        values = (figure([s for place in draw for s in groups[place]]) for draw in draws)
        return np.array([value for value in values if value is not None])

    low, high = bootstrap(of_draws, len(groups), seed=seed, num_draws=NUM_RESAMPLES)
    return Estimate(value=found, low=float(low), high=float(high), n=len(groups))
