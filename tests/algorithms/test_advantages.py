"""Turn credit against worked examples done by hand: SPEC section 3, row by row."""

from __future__ import annotations

from dataclasses import replace
from math import asinh, inf, log, nan, sqrt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.algorithms import advantages
from cast_ray.algorithms.credit import add_advantages
from cast_ray.config.learning import AdvantageConfig
from cast_ray.errors import TrajectoryError
from cast_ray.rollout.trajectory import BATCH_SCHEMA, to_rollout_batch
from tests.support.credit_tables import changed, scored, trajectory
from tests.support.rooms import FIXED

EPSILON = 1e-8
DELTA = 1e-6


def shifted(costs: list[float], effects: list[bool] | None = None) -> list[float]:
    has_effect = np.array(effects if effects is not None else [True] * (len(costs) - 1), dtype=bool)
    found = advantages.shifted_solver_advantage(
        np.array(costs, dtype=float), has_effect, rescue="cost"
    )
    return found.tolist()


def normalised(values: list[float]) -> np.ndarray:
    return advantages.rms_normalised(np.array(values), epsilon=EPSILON)


def outcome_of(
    rewards: list[float], *, std: str = "population", delta: float = DELTA
) -> np.ndarray:
    return advantages.outcome_advantage(np.array(rewards), std=std, delta=delta)


# The rows of the table.


def test_finite_to_lower_cost_earns_the_drop() -> None:
    assert shifted([7, 6]) == [1]


def test_finite_to_higher_cost_loses_the_rise() -> None:
    assert shifted([5, 8]) == [-3]


def test_finite_to_the_same_cost_earns_nothing() -> None:
    assert shifted([5, 5]) == [0]


def test_last_step_to_the_goal_earns_one() -> None:
    assert shifted([1, 0]) == [1]


def test_finite_to_infinite_loses_the_whole_cost() -> None:
    assert shifted([9, inf]) == [-9]


def test_infinite_to_infinite_earns_nothing() -> None:
    assert shifted([inf, inf]) == [0]


def test_infinite_to_finite_earns_the_cost_it_leads_to() -> None:
    assert shifted([inf, 4]) == [4]


def test_infinite_to_a_win_earns_what_is_given_for_it() -> None:
    costs, has_effect = np.array([inf, 0]), np.array([True])
    found = advantages.shifted_solver_advantage(
        costs, has_effect, rescue="cost", win_from_infinite=29
    )
    assert found.tolist() == [29]


def test_rescues_earn_nothing_where_the_configuration_says_so() -> None:
    costs, has_effect = np.array([inf, 4, inf, 0]), np.array([True, True, True])
    found = advantages.shifted_solver_advantage(
        costs, has_effect, rescue="zero", win_from_infinite=29
    )
    assert found.tolist() == [0, -4, 0]


def test_unknown_rule_for_rescues_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"rescue.*cost.*zero.*'half'"):
        advantages.shifted_solver_advantage(np.zeros(2), np.ones(1, dtype=bool), rescue="half")


@pytest.mark.parametrize(("rescue", "credit"), [("cost", 22), ("zero", 0)])
def test_win_from_infinite_earns_the_safe_cells_of_its_board(rescue: str, credit: float) -> None:
    board = "+....\n.1...\nF....\n.....\n..+.."  # 25 cells, 3 mines
    row = replace(
        trajectory(group=0, episode=0, effects=("changed",), reward=1.0),
        game="minesweeper",
        puzzle=board,
        states=(board, board),
    )
    batch, _ = add_advantages(scored((row, [inf, 0])), AdvantageConfig(alpha=1.0, rescue=rescue))
    assert batch["shifted_advantages"].to_pylist() == [[credit]]


def test_invalid_turn_earns_nothing() -> None:
    assert shifted([4, 4], [False]) == [0]


def test_ineffective_turn_in_a_dead_state_earns_nothing() -> None:
    assert shifted([inf, inf], [False]) == [0]


def test_truncated_turn_earns_nothing_even_where_the_cost_is_unknown() -> None:
    assert shifted([nan, nan], [False]) == [0]


def test_unknown_on_either_side_has_no_credit() -> None:
    assert np.isnan(shifted([nan, 3, nan, nan])).all()
    assert np.isnan(shifted([nan, inf, nan])).all()


def test_whole_trajectory_row_by_row() -> None:
    # 6 -> 5 a step nearer; -> 5 a wall; -> 7 two away; -> dead; -> dead still.
    costs = [6, 5, 5, 7, inf, inf]
    assert shifted(costs, [True, False, True, True, True]) == [1, 0, -2, -7, 0]


def test_turns_without_effect_are_read_from_the_effects_column() -> None:
    effects = ("changed", "invalid", "ineffective", "illegal", "truncated")
    row = trajectory(group=0, episode=0, effects=effects, reward=0.0)
    # Costs that would earn 1 each, if the effect did not say otherwise.
    batch, summary = add_advantages(scored((row, [9, 8, 7, 6, 5, 4])), AdvantageConfig(alpha=1.0))
    assert batch["shifted_advantages"].to_pylist() == [[1, 0, 0, 0, 0]]
    assert (summary.unknown_costs, summary.progress_fraction) == (0, 0.2)


@FIXED
@given(st.lists(st.integers(0, 60), min_size=2, max_size=20))
def test_credit_of_finite_costs_telescopes(costs: list[int]) -> None:
    assert sum(shifted([float(cost) for cost in costs])) == costs[0] - costs[-1]


@pytest.mark.parametrize(
    ("costs", "effects"), [([3, 2], [True, True]), ([], []), ([3, -1], [True])]
)
def test_costs_that_cannot_be_are_refused(costs: list[float], effects: list[bool]) -> None:
    with pytest.raises(ValueError, match=r"turns need|must be >= 0"):
        shifted(costs, effects)


# asinh and the RMS.


def test_asinh_compresses_and_keeps_sign_and_zero() -> None:
    # asinh(x) = ln(x + sqrt(x² + 1)): asinh(1) = 0.88137, asinh(-9) = -2.89344.
    found = advantages.asinh(np.array([1.0, 0.0, -9.0]))
    np.testing.assert_allclose(found, [log(1 + sqrt(2)), 0.0, -log(9 + sqrt(82))], rtol=1e-15)
    np.testing.assert_allclose(found, [0.881374, 0.0, -2.893444], atol=1e-6)


def test_ablation_transforms() -> None:
    np.testing.assert_array_equal(advantages.identity(np.array([-9.0, 2.0])), [-9.0, 2.0])
    np.testing.assert_allclose(advantages.signed_log(np.array([-9.0, 0.0])), [-log(10), 0.0])


def test_rms_counts_zeros() -> None:
    # sqrt((3² + 0 + 4² + 0) / 4) = 2.5
    found = normalised([3.0, 0.0, 4.0, 0.0])
    np.testing.assert_allclose(found, [1.2, 0.0, 1.6, 0.0], rtol=1e-8)


def test_rms_does_not_subtract_the_mean() -> None:
    found = normalised([2.0, 2.0])
    np.testing.assert_allclose(found, [1.0, 1.0], rtol=1e-8)


def test_rms_leaves_unknown_turns_out() -> None:
    # sqrt((3² + 4²) / 2) = 3.53553, not divided by 3.
    found = normalised([3.0, nan, 4.0])
    np.testing.assert_allclose(found, [3 / sqrt(12.5), nan, 4 / sqrt(12.5)], rtol=1e-8)


def test_rms_of_no_turn_and_of_no_signal() -> None:
    assert normalised([]).tolist() == []
    assert np.isnan(normalised([nan])).all()
    assert normalised([0.0, 0.0, 0.0]).tolist() == [0, 0, 0]


def test_rms_spans_the_whole_step_and_not_each_group() -> None:
    # g: asinh(1) = 0.88137 three times, asinh(-4) = -2.09471, one invalid turn of 0.
    # RMS = sqrt((3 * 0.776820 + 4.387820 + 0) / 5) = 1.159162
    first = changed(3, group=0, episode=0, reward=1.0)
    second = trajectory(group=1, episode=0, effects=("changed", "invalid"), reward=0.0)
    batch, _ = add_advantages(
        scored((first, [3, 2, 1, 0]), (second, [4, inf, inf])), AdvantageConfig(alpha=1.0)
    )
    found = batch["solver_advantages"].to_pylist()
    rms = sqrt((3 * asinh(1) ** 2 + asinh(4) ** 2) / 5)
    assert rms == pytest.approx(1.159162, abs=1e-6)
    np.testing.assert_allclose(found[0], [asinh(1) / (rms + EPSILON)] * 3, rtol=1e-14)
    np.testing.assert_allclose(found[1], [-asinh(4) / (rms + EPSILON), 0.0], rtol=1e-14)
    np.testing.assert_allclose(found[0][0], 0.760354, atol=1e-6)


def test_ablation_without_normalisation_keeps_the_moves() -> None:
    row = changed(2, group=0, episode=0, reward=0.0)
    batch, _ = add_advantages(
        scored((row, [5, 4, 7])),
        AdvantageConfig(alpha=1.0, transform="identity", normalisation="none"),
    )
    assert batch["solver_advantages"].to_pylist() == [[1.0, -3.0]]


# Outcome advantage.


def test_outcome_with_population_deviation() -> None:
    # mean 0.25, sigma = sqrt(0.25 * 0.75) = 0.4330127
    found = outcome_of([1.0, 0.0, 0.0, 0.0])
    expected = np.array([0.75, -0.25, -0.25, -0.25]) / (0.4330127018922193 + DELTA)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_allclose(found, [1.732047, -0.577349, -0.577349, -0.577349], atol=1e-6)


def test_outcome_with_sample_deviation() -> None:
    # sigma = sqrt(0.75 / 3) = 0.5
    found = outcome_of([1.0, 0.0, 0.0, 0.0], std="sample", delta=0.0)
    np.testing.assert_allclose(found, [1.5, -0.5, -0.5, -0.5], rtol=1e-14)


def test_outcome_of_a_group_of_one_is_zero() -> None:
    assert outcome_of([1.0]).tolist() == [0.0]
    assert outcome_of([1.0], std="sample").tolist() == [0.0]


@pytest.mark.parametrize("std", ["population", "sample"])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_outcome_of_equal_rewards_is_zero(std: str, reward: float) -> None:
    found = outcome_of([reward] * 8, std=std, delta=0.0)
    assert found.tolist() == [0.0] * 8


def test_outcome_of_an_empty_group_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty group"):
        outcome_of([])


def test_unknown_deviation_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"std.*population.*sample.*'biased'"):
        outcome_of([0.0, 0.0], std="biased")


def test_groups_are_told_apart_wherever_their_rows_are() -> None:
    rows = [
        changed(1, group=group, episode=episode, reward=reward)
        for episode, group, reward in [(0, 5, 1.0), (0, 2, 0.0), (1, 5, 0.0), (1, 2, 0.0)]
    ]
    batch, _ = add_advantages(scored(*((row, [1, 1]) for row in rows)), AdvantageConfig(alpha=0.1))
    one = 0.5 / (0.5 + DELTA)
    np.testing.assert_allclose(batch["outcome_advantage"], [one, 0.0, -one, 0.0], rtol=1e-14)


# The final advantage.


def test_final_advantage_adds_alpha_times_the_solver_term() -> None:
    found = advantages.final_advantage(0.5, np.array([2.0, 0.0, -1.0]), alpha=0.1)
    np.testing.assert_allclose(found, [0.7, 0.5, 0.4], rtol=1e-15)


def test_turn_of_unknown_cost_keeps_its_outcome_advantage_alone() -> None:
    found = advantages.final_advantage(0.5, np.array([nan, 1.0]), alpha=0.1)
    np.testing.assert_allclose(found, [0.5, 0.6], rtol=1e-15)


def test_unknown_costs_are_counted_and_null_in_the_table() -> None:
    row = changed(3, group=0, episode=0, reward=1.0)
    batch, summary = add_advantages(scored((row, [4, nan, 2, 1])), AdvantageConfig(alpha=1.0))
    assert batch["shifted_advantages"].to_pylist() == [[None, None, 1.0]]
    assert batch["turn_advantages"].to_pylist()[0][:2] == [0.0, 0.0]
    assert (summary.unknown_costs, summary.shifted_advantage_mean) == (2, 1.0)


def test_without_a_solver_progress_and_harm_are_unknown_and_not_zero() -> None:
    row = trajectory(group=0, episode=0, effects=("changed", "invalid"), reward=1.0)
    _, summary = add_advantages(scored((row, [nan, nan, nan])), AdvantageConfig(alpha=1.0))
    shares = (summary.progress_fraction, summary.harmful_fraction, summary.shifted_advantage_mean)
    assert np.isnan(shares).all()


def test_group_that_all_solve_keeps_its_solver_term() -> None:
    # Outcome 0 for both; one goes straight (1, 1), one takes a detour (-1, 1): all |g| are equal,
    # so h = +-1 and the advantage is +-alpha.
    straight = changed(2, group=0, episode=0, reward=1.0)
    detour = changed(2, group=0, episode=1, reward=1.0)
    batch, _ = add_advantages(
        scored((straight, [2, 1, 0]), (detour, [2, 3, 2])), AdvantageConfig(alpha=0.1)
    )
    assert batch["outcome_advantage"].to_pylist() == [0.0, 0.0]
    found = batch["turn_advantages"].to_pylist()
    np.testing.assert_allclose(found, [[0.1, 0.1], [-0.1, 0.1]], rtol=1e-7)


def test_worked_example_of_a_whole_group() -> None:
    # Solved 2 -> 1 -> 0; lost 2 -> dead. Outcome +-0.5 / (0.5 + 1e-6) = +-0.999998.
    # g = 0.881374, 0.881374, -1.443635; RMS = sqrt((2 * 0.776820 + 2.084083) / 3) = 1.101170.
    # h = 0.800398, 0.800398, -1.311000; with alpha 0.1 the rest follows.
    solved = changed(2, group=0, episode=0, reward=1.0)
    lost = changed(1, group=0, episode=1, reward=0.0)
    batch, _ = add_advantages(
        scored((solved, [2, 1, 0]), (lost, [2, inf])), AdvantageConfig(alpha=0.1)
    )
    found = batch["turn_advantages"].to_pylist()
    np.testing.assert_allclose(found[0], [1.080038, 1.080038], atol=2e-6)
    np.testing.assert_allclose(found[1], [-1.131098], atol=2e-6)


def test_tokens_carry_the_advantage_of_their_turn_and_others_none() -> None:
    row = changed(2, group=0, episode=0, reward=0.0)
    batch, _ = add_advantages(scored((row, [3, 2, 4])), AdvantageConfig(alpha=1.0))
    assert batch.schema.equals(BATCH_SCHEMA)
    up, down = np.array(batch["turn_advantages"].to_pylist()[0], dtype=np.float32)
    assert batch["token_advantages"].to_pylist() == [[0.0, up, up, 0.0, down, down]]


def test_alpha_zero_leaves_the_outcome_alone() -> None:
    rows = [changed(2, group=0, episode=e, reward=float(e)) for e in range(2)]
    batch, _ = add_advantages(
        scored(*((row, [5, 4, 9]) for row in rows)), AdvantageConfig(alpha=0.0)
    )
    outcome = batch["outcome_advantage"].to_pylist()
    assert batch["turn_advantages"].to_pylist() == [[value, value] for value in outcome]


def test_advantage_that_is_not_finite_names_its_trajectory() -> None:
    good = changed(2, group=0, episode=0, reward=1.0)
    bad = replace(changed(1, group=3, episode=5, reward=0.0), reward=inf)
    beside = changed(1, group=3, episode=6, reward=0.0)
    table = scored((good, [2, 1, 0]), (bad, [2, 1]), (beside, [2, 1]))
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(TrajectoryError, match=r"step 4, group 3, episode 5"),
    ):
        add_advantages(table, AdvantageConfig(alpha=0.1))


def test_table_of_another_stage_is_refused() -> None:
    rollout = to_rollout_batch([changed(1, group=0, episode=0, reward=0.0)])
    with pytest.raises(TrajectoryError, match=r"'cost_estimates', 'cost_status'"):
        add_advantages(pa.Table.from_batches([rollout]), AdvantageConfig(alpha=0.1))


# The control with permuted credit.


def many_turns() -> pa.Table:
    rng = np.random.default_rng(0)
    rows = [changed(6, group=group, episode=0, reward=0.0) for group in range(20)]
    return scored(*((row, [float(cost) for cost in rng.integers(0, 30, 7)]) for row in rows))


def test_permuted_credit_keeps_the_values_and_moves_them() -> None:
    true, _ = add_advantages(many_turns(), AdvantageConfig(alpha=0.3))
    permuted, _ = add_advantages(
        many_turns(), AdvantageConfig(alpha=0.3, permute_credit=True), rng=np.random.default_rng(1)
    )
    before = np.concatenate(true["solver_advantages"].to_pylist())
    after = np.concatenate(permuted["solver_advantages"].to_pylist())
    np.testing.assert_array_equal(np.sort(after), np.sort(before))
    assert np.mean(after != before) > 0.8
    assert true["shifted_advantages"].equals(permuted["shifted_advantages"])


def test_permuted_credit_reaches_the_turn_advantages() -> None:
    permuted, _ = add_advantages(
        many_turns(), AdvantageConfig(alpha=0.3, permute_credit=True), rng=np.random.default_rng(1)
    )
    solver = np.concatenate(permuted["solver_advantages"].to_pylist())
    turn = np.concatenate(permuted["turn_advantages"].to_pylist())
    np.testing.assert_allclose(turn, 0.3 * solver, rtol=1e-15)


# Departures from the paper and controls.

MIXED = ("changed", "ineffective", "illegal", "invalid", "truncated", "changed")
"""Effects of the turns below, whose costs are 5, 4, 4, 4, 4, 4, 6."""


def solver_credit(config: AdvantageConfig, *costs: list[float], effects: tuple = MIXED) -> list:
    rows = [
        (trajectory(group=index // 2, episode=index % 2, effects=effects, reward=0.0), one)
        for index, one in enumerate(costs)
    ]
    table, _ = add_advantages(scored(*rows), config)
    return table["solver_advantages"].to_pylist()


def test_idle_price_is_paid_for_executed_turns_without_effect_alone() -> None:
    config = AdvantageConfig(transform="identity", normalisation="none", idle_price=-1)
    assert solver_credit(config, [5, 4, 4, 4, 4, 4, 6]) == [[1, -1, -1, -1, 0, -2]]


def test_idle_price_is_paid_where_costs_are_unknown_too() -> None:
    config = AdvantageConfig(transform="identity", normalisation="none", idle_price=-1)
    found = solver_credit(config, [nan] * 7)
    assert found == [[None, -1, -1, -1, 0, None]]


def test_without_the_shift_each_executed_turn_earns_one_less() -> None:
    config = AdvantageConfig(transform="identity", normalisation="none", shift=0)
    assert solver_credit(config, [5, 4, 4, 4, 4, 4, inf]) == [[0, -1, -1, -1, 0, -5]]


def test_price_of_minus_one_and_no_shift_agree_on_idle_turns_alone() -> None:
    price = AdvantageConfig(transform="identity", normalisation="none", idle_price=-1)
    unshifted = replace(price, idle_price=0.0, shift=0)
    costs = [5, 4, 4, 4, 4, 4, 6]
    difference = np.subtract(solver_credit(price, costs), solver_credit(unshifted, costs))
    assert difference.tolist() == [[1, 0, 0, 0, 0, 1]]


def test_departures_leave_the_shifted_advantage_as_it_is() -> None:
    rows = [(trajectory(group=0, episode=0, effects=MIXED, reward=0.0), [5, 4, 4, 4, 4, 4, 6])]
    tables = [
        add_advantages(scored(*rows), AdvantageConfig(**values))
        for values in ({}, {"idle_price": -1.0}, {"shift": 0}, {"level": "trajectory_sum"})
    ]
    assert all(
        table["shifted_advantages"].equals(tables[0][0]["shifted_advantages"])
        and summary == tables[0][1]
        for table, summary in tables
    )


@pytest.mark.parametrize("level", ["trajectory_sum", "trajectory_mean"])
def test_credit_of_whole_trajectories_is_one_value_compared_within_the_group(level: str) -> None:
    rows = [
        (changed(2, group=0, episode=0, reward=1.0), [2, 1, 0]),  # asinh(1) twice
        (changed(4, group=0, episode=1, reward=0.0), [2, 1, 2, 3, 3]),  # 1, -1, -1, 0
        (changed(3, group=0, episode=2, reward=0.0), [2, 3, 5, 5]),  # -1, -2, 0
        (changed(1, group=1, episode=0, reward=0.0), [nan, 3]),
        (changed(3, group=1, episode=1, reward=0.0), [nan, 3, 2, 1]),  # unknown, 1, 1
        (changed(1, group=1, episode=2, reward=0.0), [3, 5]),  # -2
    ]
    table, _ = add_advantages(scored(*rows), AdvantageConfig(level=level))
    one, two = asinh(1), asinh(2)
    turns = np.array([one, one, one, -one, -one, 0.0, -one, -two, 0.0, one, one, -two])
    rms = np.sqrt(np.mean(turns**2))
    count = (lambda n: n) if level == "trajectory_mean" else (lambda n: 1)
    groups = [
        [2 * one / count(2), -one / count(4), -(one + two) / count(3)],
        [2 * one / count(2), -two],
    ]
    expected = [
        (np.array(values) / rms - np.mean(values) / rms) / (np.std(values) / rms + DELTA)
        for values in groups
    ]
    per_trajectory = [*expected[0], None, *expected[1]]
    for found, value in zip(table["solver_advantages"].to_pylist(), per_trajectory, strict=True):
        assert found == [None if value is None else pytest.approx(value, rel=1e-6)] * len(found)


def test_sum_over_a_trajectory_ranks_by_the_cost_that_is_left() -> None:
    # The drops of one trajectory add up to N(s_0) - N(s_T), whatever came between.
    config = AdvantageConfig(transform="identity", level="trajectory_sum")
    rows = [
        (changed(3, group=0, episode=0, reward=0.0), [9, 12, 4, 5]),
        (changed(5, group=0, episode=1, reward=0.0), [9, 8, 7, 6, 5, 2]),
        (changed(1, group=0, episode=2, reward=0.0), [9, 8]),
    ]
    table, _ = add_advantages(scored(*rows), config)
    values = [found[0] for found in table["solver_advantages"].to_pylist()]
    left = np.array([5.0, 2.0, 8.0])
    np.testing.assert_allclose(values, (left.mean() - left) / left.std(), rtol=1e-5)


@FIXED
@given(st.permutations(range(4)))
def test_order_of_the_rows_changes_no_advantage(order: list[int]) -> None:
    played = [
        (changed(2, group=index // 2, episode=index % 2, reward=float(index == 1)), costs)
        for index, costs in enumerate([[4, 3, inf], [2, 1, 0], [5, 6, 5], [7, nan, 3]])
    ]
    straight, _ = add_advantages(scored(*played), AdvantageConfig(alpha=0.5))
    mixed, _ = add_advantages(
        scored(*(played[index] for index in order)), AdvantageConfig(alpha=0.5)
    )
    expected = [straight["turn_advantages"].to_pylist()[index] for index in order]
    # The sum under the root is taken in another order.
    np.testing.assert_allclose(mixed["turn_advantages"].to_pylist(), expected, rtol=1e-14)
