"""GiGPO's step advantage against a loop over pairs of turns, and where it enters the credit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.algorithms import advantages
from cast_ray.algorithms.credit import add_advantages, add_credit
from cast_ray.config.learning import AdvantageConfig
from cast_ray.config.load import load_config
from cast_ray.rollout.trajectory import Trajectory
from tests.support.credit_tables import changed, scored
from tests.support.rooms import FIXED

DELTA = 1e-6
BOARDS = ["P_X_O", "_PX_O", "__PXO", "P_XO_"]


def on_boards(boards: Sequence[str], *, group: int, episode: int, reward: float) -> Trajectory:
    """Return a trajectory that acts on these boards in turn."""
    row = changed(len(boards), group=group, episode=episode, reward=reward)
    return replace(row, states=(*boards, "___P*"))


def naive(rows: Sequence[Trajectory], *, discount: float, is_sample: bool) -> list[list[float]]:
    """Compare every turn with every other one, by the definition."""
    every = [
        (row.group, row.states[turn], row.reward * discount ** (len(row.effects) - 1 - turn))
        for row in rows
        for turn in range(len(row.effects))
    ]
    found = []
    for row in rows:
        values = []
        for turn in range(len(row.effects)):
            own = row.reward * discount ** (len(row.effects) - 1 - turn)
            same = [x for group, s, x in every if (group, s) == (row.group, row.states[turn])]
            mean = sum(same) / len(same)
            squares = sum((x - mean) ** 2 for x in same)
            sigma = math.sqrt(squares / max(len(same) - is_sample, 1))
            values.append(0.0 if sigma < 1e-6 else (own - mean) / (sigma + DELTA))
        found.append(values)
    return found


def table_of(rows: Sequence[Trajectory]) -> pa.Table:
    return scored(*((row, [3.0] * len(row.states)) for row in rows))


def test_returns_are_discounted_from_the_last_turn() -> None:
    found = advantages.discounted_returns(1.0, 3, discount=0.5)
    assert found.tolist() == [0.25, 0.5, 1.0]
    assert advantages.discounted_returns(0.0, 2, discount=0.95).tolist() == [0.0, 0.0]
    assert advantages.discounted_returns(1.0, 2, discount=0.0).tolist() == [0.0, 1.0]


def test_turns_that_saw_the_same_board_are_compared() -> None:
    # Returns 0.9025 and 0 on the board "a": mean 0.45125, population deviation 0.45125.
    found = advantages.step_advantage(
        np.array([0.9025, 0.0, 0.5]), ["a", "a", "b"], std="population"
    )
    one = 0.45125 / (0.45125 + DELTA)
    np.testing.assert_allclose(found, [one, -one, 0.0], rtol=1e-14)


def test_sample_deviation_of_a_step() -> None:
    found = advantages.step_advantage(np.array([1.0, 0.0]), ["a", "a"], std="sample")
    np.testing.assert_allclose(found, np.array([0.5, -0.5]) / (math.sqrt(0.5) + DELTA), rtol=1e-14)


def test_turn_that_nothing_can_be_compared_with_has_none() -> None:
    assert advantages.step_advantage(
        np.array([1.0, 0.3]), ["a", "b"], std="population"
    ).tolist() == [0.0, 0.0]
    assert advantages.step_advantage(np.zeros(0), [], std="population").tolist() == []


@pytest.mark.parametrize("std", ["population", "sample"])
def test_returns_that_are_nearly_the_same_give_none(std: str) -> None:
    found = advantages.step_advantage(np.array([1.0, 1.0 + 1e-7]), ["a", "a"], std=std)
    assert found.tolist() == [0.0, 0.0]


def test_board_met_twice_in_a_trajectory_counts_twice() -> None:
    # 0.95^2, 1 and 0 on the same board: mean 0.634167, deviation 0.450187.
    rows = [
        on_boards(["P_X_O", "_PX_O", "P_X_O"], group=0, episode=0, reward=1.0),
        on_boards(["P_X_O"], group=0, episode=1, reward=0.0),
    ]
    batch, _ = add_advantages(table_of(rows), AdvantageConfig(alpha=0.0, step_weight=1.0))
    found = batch["step_advantages"].to_pylist()
    np.testing.assert_allclose(found[0], [0.596048, 0.0, 0.812624], atol=1e-6)
    np.testing.assert_allclose(found[1], [-1.408672], atol=1e-6)


def test_flags_make_another_board() -> None:
    rows = [
        on_boards([".1\n.+"], group=0, episode=0, reward=1.0),
        on_boards(["F1\n.+"], group=0, episode=1, reward=0.0),
    ]
    batch, _ = add_advantages(table_of(rows), AdvantageConfig(alpha=0.0, step_weight=1.0))
    assert batch["step_advantages"].to_pylist() == [[0.0], [0.0]]


def test_board_after_the_last_turn_is_compared_with_none() -> None:
    rows = [
        replace(on_boards(["P_X_O"], group=0, episode=e, reward=float(e)), states=("P_X_O", board))
        for e, board in enumerate(["_PX_O", "P_X_O"])
    ]
    rows.append(on_boards(["_PX_O"], group=0, episode=2, reward=1.0))
    batch, _ = add_advantages(table_of(rows), AdvantageConfig(alpha=0.0, step_weight=1.0))
    assert batch["step_advantages"].to_pylist()[2] == [0.0]


@st.composite
def played(draw: st.DrawFn) -> list[Trajectory]:
    boards = st.lists(st.sampled_from(BOARDS), min_size=1, max_size=5)
    return [
        on_boards(
            draw(boards),
            group=draw(st.integers(0, 2)),
            episode=episode,
            reward=draw(st.sampled_from([0.0, 1.0])),
        )
        for episode in range(draw(st.integers(1, 9)))
    ]


@FIXED
@given(played(), st.sampled_from(["population", "sample"]), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_step_advantages_are_those_of_a_loop_over_all_pairs(
    rows: list[Trajectory], std: str, discount: float
) -> None:
    batch, _ = add_advantages(
        table_of(rows), AdvantageConfig(alpha=0.0, step_weight=1.0, step_discount=discount, std=std)
    )
    expected = naive(rows, discount=discount, is_sample=std == "sample")
    for found, values in zip(batch["step_advantages"].to_pylist(), expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=1e-9, atol=1e-9)


def test_turn_advantage_is_outcome_and_weighted_step_and_solver_term() -> None:
    rows = [
        on_boards(["P_X_O", "_PX_O"], group=0, episode=0, reward=1.0),
        on_boards(["P_X_O", "P_X_O"], group=0, episode=1, reward=0.0),
    ]
    table = scored((rows[0], [3, 2, 0]), (rows[1], [3, 3, 4]))
    batch, _ = add_advantages(table, AdvantageConfig(alpha=0.25, step_weight=2.0))
    for row in batch.to_pylist():
        terms = zip(row["step_advantages"], row["solver_advantages"], strict=True)
        expected = [row["outcome_advantage"] + 2.0 * s + 0.25 * h for s, h in terms]
        np.testing.assert_allclose(row["turn_advantages"], expected, rtol=1e-14)
        assert any(row["step_advantages"])


def test_without_weight_the_column_is_zero_and_nothing_else_changes() -> None:
    rows = [on_boards(["P_X_O"] * 2, group=0, episode=e, reward=float(e)) for e in range(2)]
    without, _ = add_advantages(table_of(rows), AdvantageConfig(alpha=0.5))
    assert without["step_advantages"].to_pylist() == [[0.0, 0.0], [0.0, 0.0]]
    outcome = without["outcome_advantage"].to_pylist()
    assert without["turn_advantages"].to_pylist() == [[value, value] for value in outcome]


def test_algorithm_gigpo_uses_the_step_advantage_and_no_solver() -> None:
    rows = [
        on_boards(["P_X_O", "_PX_O"], group=0, episode=0, reward=1.0),
        on_boards(["P_X_O"], group=0, episode=1, reward=0.0),
    ]
    batch, _ = add_credit(table_of(rows), load_config(None, ["algorithm=gigpo"]), step=1)
    one = 0.5 / (0.5 + DELTA)
    half = 0.475 / (0.475 + DELTA)
    np.testing.assert_allclose(batch["turn_advantages"].to_pylist()[0], [one + half, one])
    np.testing.assert_allclose(batch["turn_advantages"].to_pylist()[1], [-one - half])
