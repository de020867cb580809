"""DAPO's overlong shaping: the penalty of a length, and the one place where it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.algorithms import advantages
from cast_ray.algorithms.credit import add_advantages, add_credit, num_response_tokens
from cast_ray.config.learning import AdvantageConfig
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError
from cast_ray.rollout.trajectory import Trajectory
from tests.support.credit_tables import changed, scored
from tests.support.rooms import FIXED

DELTA = 1e-6


def penalties(*lengths: int, bound: int, buffer: int) -> list[float]:
    return advantages.overlong_penalty(np.array(lengths), bound=bound, buffer=buffer).tolist()


def one_turn(length: int, *, episode: int, reward: float) -> Trajectory:
    """Return a trajectory of one prompt token and ``length`` others, the first two an answer."""
    row = changed(1, group=0, episode=episode, reward=reward)
    tail = (0,) * (length - 2)
    return replace(
        row,
        token_ids=row.token_ids + tail,
        loss_mask=row.loss_mask + tail,
        rollout_logprobs=row.rollout_logprobs + tail,
        weight_versions=row.weight_versions + (-1,) * len(tail),
    )


def test_penalty_grows_over_the_buffer_alone() -> None:
    found = penalties(0, 59, 60, 61, 70, 99, 100, bound=100, buffer=40)
    assert found == [0.0, 0.0, 0.0, -0.025, -0.25, -0.975, -1.0]


def test_penalty_is_never_more_than_a_reward() -> None:
    assert penalties(101, 1000, bound=100, buffer=40) == [-1.0, -1.0]


def test_no_buffer_is_no_penalty() -> None:
    assert penalties(5, 100, 200, bound=100, buffer=0) == [0.0, 0.0, 0.0]


@FIXED
@given(st.integers(0, 300), st.integers(1, 200), st.integers(0, 200))
def test_penalty_is_that_of_its_three_cases(length: int, buffer: int, above: int) -> None:
    bound = buffer + above
    if length <= bound - buffer:
        expected = 0.0
    elif length <= bound:
        expected = ((bound - buffer) - length) / buffer
    else:
        expected = -1.0
    assert penalties(length, bound=bound, buffer=buffer) == [expected]


def test_observations_count_as_response_and_the_prompt_does_not() -> None:
    row = changed(3, group=0, episode=0, reward=0.0)  # 1 prompt, 3 x 2 answer, 2 between
    assert num_response_tokens(scored((row, [3, 2, 1, 0]))).tolist() == [8]


def test_shaped_reward_counts_in_the_outcome_advantage_and_nowhere_else() -> None:
    # Rewards 1 - 0.5 and 0 - 0: mean 0.25, deviation 0.25.
    rows = [one_turn(90, episode=0, reward=1.0), one_turn(10, episode=1, reward=0.0)]
    table = scored(*((row, [3.0, 3.0]) for row in rows))
    batch, _ = add_advantages(
        table, AdvantageConfig(alpha=0.0, step_weight=1.0, overlong_buffer=20), response_tokens=100
    )
    one = 0.25 / (0.25 + DELTA)
    np.testing.assert_allclose(batch["outcome_advantage"], [one, -one], rtol=1e-13)
    assert batch["reward"].to_pylist() == [1.0, 0.0]
    unshaped, _ = add_advantages(table, AdvantageConfig(alpha=0.0, step_weight=1.0))
    assert batch["step_advantages"].equals(unshaped["step_advantages"])
    assert any(any(row) for row in batch["step_advantages"].to_pylist())


def test_group_that_all_lose_learns_to_be_short() -> None:
    rows = [one_turn(100, episode=0, reward=0.0), one_turn(10, episode=1, reward=0.0)]
    config = load_config(
        None, ["algorithm=dapo", "advantage.overlong_buffer=20", "rollout.response_tokens=100"]
    )
    batch, _ = add_credit(scored(*((row, [3.0, 3.0]) for row in rows)), config, step=1)
    one = 0.5 / (0.5 + DELTA)
    np.testing.assert_allclose(batch["outcome_advantage"], [-one, one], rtol=1e-13)


def test_buffer_larger_than_the_bound_is_refused_with_both() -> None:
    load_config(None, ["advantage.overlong_buffer=400", "rollout.response_tokens=400"])
    with pytest.raises(ConfigError, match=r"overlong_buffer=401 .*response_tokens \(400\)"):
        load_config(None, ["advantage.overlong_buffer=401", "rollout.response_tokens=400"])
