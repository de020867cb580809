"""The figures of a teacher's quality against naive loops, and against teachers that are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from cast_ray.training.value_net import quality
from cast_ray.training.value_net.quality import JudgedState
from tests.support.rooms import FIXED


def judged(cost: float, value: float, *after: tuple[float, float], puzzle: int = 0) -> JudgedState:
    """Return a state whose moves lead to pairs of N and V."""
    return JudgedState(
        puzzle=puzzle,
        board="",
        cost=cost,
        value=value,
        actions=tuple(f"move {place}" for place in range(len(after))),
        costs_after=tuple(float(cost) for cost, _ in after),
        values_after=tuple(float(value) for _, value in after),
    )


def line(length: int, *, slope: float, num_puzzles: int = 4) -> list[JudgedState]:
    """Return states of a corridor where V = slope * N, with moves farther, nowhere and nearer."""
    return [
        judged(
            cost,
            slope * cost,
            *((near, slope * near) for near in (cost + 1, cost, cost - 1)),
            puzzle=puzzle,
        )
        for puzzle in range(num_puzzles)
        for cost in range(1, length + 1)
    ]


def test_a_teacher_who_knows_the_cost_is_perfect_and_its_opposite_always_wrong() -> None:
    for slope, spearman, others in ((-0.1, 1, 1), (0.1, -1, 0)):
        found = quality.teacher_quality(line(5, slope=slope), seed=0)
        assert found.spearman and found.sign_agreement and found.optimal_choice
        assert found.spearman.value == pytest.approx(spearman)
        assert found.sign_agreement.value == others
        assert found.optimal_choice.value == others
        assert found.spearman.low == pytest.approx(spearman)
        assert (found.num_states, found.num_infinite, found.loss_agreement) == (20, 0, None)


def test_a_value_that_does_not_move_agrees_with_nothing() -> None:
    state = judged(3, 0.5, (2, 0.5), (4, 0.5))
    assert quality.sign_agreement([state]) == 0
    assert quality.sign_agreement([judged(3, 0.5, (2, 0.6), (4, 0.5))]) == 0.5


def test_moves_that_change_nothing_and_moves_into_the_infinite_are_no_sign() -> None:
    state = judged(3, 0.5, (3, 0.9), (math.inf, 0.9), (2, 0.6))
    assert quality.sign_agreement([state]) == 1
    assert quality.loss_agreement([state]) == 0
    assert quality.loss_agreement([replace(state, values_after=(0.9, 0.4, 0.6))]) == 1
    assert quality.sign_agreement([judged(3, 0.5, (3, 0.9))]) is None


def test_any_of_the_best_moves_is_optimal() -> None:
    state = judged(3, 0.5, (2, 0.1), (4, 0.2), (2, 0.3))
    assert quality.optimal_choice([state]) == 1
    assert quality.optimal_choice([replace(state, values_after=(0.1, 0.4, 0.3))]) == 0
    assert quality.optimal_choice([judged(3, 0.5)]) is None


def test_states_of_infinite_cost_are_counted_and_left_out() -> None:
    lost = judged(math.inf, 5.0, (math.inf, 7.0), (2, 0.0))
    with_lost = quality.teacher_quality([*line(5, slope=-0.1), lost], seed=0)
    assert with_lost == replace(
        quality.teacher_quality(line(5, slope=-0.1), seed=0), num_states=21, num_infinite=1
    )
    assert list(quality.by_distance([lost, *line(3, slope=1)])) == [1, 2, 3]


def test_where_all_states_are_equally_far_there_is_no_rank() -> None:
    assert quality.spearman([judged(2, 0.1), judged(2, 0.2)]) is None
    assert quality.spearman([judged(2, 0.1), judged(3, 0.1)]) is None
    found = quality.teacher_quality([judged(2, 0.1), judged(2, 0.2)], seed=0)
    assert found.spearman is None


@FIXED
@given(
    st.lists(
        st.tuples(
            st.integers(1, 6),
            st.integers(-3, 3),
            st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, math.inf]), st.integers(-3, 3))),
        ),
        min_size=2,
        max_size=12,
    )
)
def test_figures_equal_naive_loops(
    drawn: list[tuple[int, int, list[tuple[float, int]]]],
) -> None:
    states = [judged(cost, value, *after) for cost, value, after in drawn]
    signs, losses, optimal = [], [], []
    for cost, value, after in drawn:
        for next_cost, next_value in after:
            if next_cost == math.inf:
                losses.append(next_value - value < 0)
            elif next_cost != cost:
                signs.append(np.sign(cost - next_cost) == np.sign(next_value - value))
        if after:
            first_best = [v for _, v in after].index(max(v for _, v in after))
            optimal.append(after[first_best][0] == min(n for n, _ in after))
    for figure, expected in (
        (quality.sign_agreement, signs),
        (quality.loss_agreement, losses),
        (quality.optimal_choice, optimal),
    ):
        assert figure(states) == (sum(expected) / len(expected) if expected else None)
    costs, values = [cost for cost, _, _ in drawn], [value for _, value, _ in drawn]
    if len(set(costs)) > 1 and len(set(values)) > 1:
        reference = spearmanr([-cost for cost in costs], values)[0]
        assert quality.spearman(states) == pytest.approx(reference)


def test_the_interval_is_over_puzzles_not_over_states() -> None:
    right = [judged(3, 0.5, (2, 0.6), puzzle=0) for _ in range(50)]
    wrong = [judged(3, 0.5, (2, 0.4), puzzle=1) for _ in range(50)]
    found = quality.teacher_quality([*right, *wrong], seed=0).sign_agreement
    assert found is not None
    # Two puzzles: both the right one is drawn twice, or the wrong one, in a quarter of the draws.
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)
