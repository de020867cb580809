import logging
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.config.load import load_config
from cast_ray.config.train import SyncConfig
from cast_ray.errors import WeightSyncError
from cast_ray.learner.logprob_check import LogprobAlarm, LogprobDifference, logprob_difference


def _difference(mean: float) -> LogprobDifference:
    return LogprobDifference(
        mean=mean, largest=10 * mean, num_tokens=100, kl=0.0, share_beyond_cap=0.0
    )


def _alarm() -> LogprobAlarm:
    alarm = LogprobAlarm(SyncConfig(warn_ratio=3, stop_ratio=10))
    alarm.judge(_difference(0.002))
    return alarm


BATCH = pa.table(
    {
        "token_ids": pa.array([[7, 8, 9]], pa.list_(pa.int32())),
        "loss_mask": pa.array([[0, 1, 1]], pa.list_(pa.uint8())),
        "rollout_logprobs": pa.array([[0.0, -1.0, -2.0]], pa.list_(pa.float32())),
    }
)
OBJECTIVE = load_config(None, []).objective


def test_only_tokens_in_the_loss_are_compared() -> None:
    difference = logprob_difference(BATCH, np.array([-99.0, -1.5, -2.0], np.float32), OBJECTIVE)

    assert (difference.mean, difference.largest, difference.num_tokens) == (0.25, 0.5, 2)


def test_divergence_is_the_mean_of_the_low_variance_estimate() -> None:
    difference = logprob_difference(BATCH, np.array([0.0, -1.5, -2.0], np.float32), OBJECTIVE)

    assert difference.kl == pytest.approx((np.exp(-0.5) + 0.5 - 1) / 2)


@pytest.mark.parametrize(("correction", "share"), [("truncate", 0.5), ("none", 0.5), ("mask", 1.0)])
def test_share_beyond_the_cap_counts_both_sides_where_tokens_are_left_out(
    correction: str, share: float
) -> None:
    objective = replace(OBJECTIVE, rollout_correction=correction)

    # Ratios e^1 and e^-1 with a cap of 2.
    difference = logprob_difference(BATCH, np.array([0.0, 0.0, -3.0], np.float32), objective)

    assert difference.share_beyond_cap == share


def test_the_first_difference_is_the_healthy_level() -> None:
    assert _alarm().healthy == 0.002


def test_a_first_difference_beyond_all_arithmetic_stops_the_run() -> None:
    with pytest.raises(WeightSyncError, match="first sync"):
        LogprobAlarm(SyncConfig(warn_ratio=3, stop_ratio=10)).judge(_difference(1.5))


def test_twice_the_healthy_level_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _alarm().judge(_difference(0.004))
    assert not caplog.records


def test_three_times_the_healthy_level_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _alarm().judge(_difference(0.0061))
    assert "3.0 times" in caplog.text or "3.1 times" in caplog.text


def test_ten_times_the_healthy_level_stops_the_run() -> None:
    with pytest.raises(WeightSyncError, match="learner's weights"):
        _alarm().judge(_difference(0.0201))


def test_a_resumed_alarm_keeps_its_level() -> None:
    alarm = LogprobAlarm(SyncConfig(warn_ratio=3, stop_ratio=10), healthy=0.001)
    with pytest.raises(WeightSyncError):
        alarm.judge(_difference(0.02))
    assert alarm.healthy == 0.001


def test_a_first_difference_that_is_no_number_stops_the_run() -> None:
    with pytest.raises(WeightSyncError, match="first sync"):
        LogprobAlarm(SyncConfig(warn_ratio=3, stop_ratio=10)).judge(_difference(math.nan))


def test_a_later_difference_that_is_no_number_stops_the_run() -> None:
    with pytest.raises(WeightSyncError, match="learner's weights"):
        _alarm().judge(_difference(math.nan))


def test_a_batch_without_a_token_in_the_loss_sets_no_level() -> None:
    alarm = LogprobAlarm(SyncConfig(warn_ratio=3, stop_ratio=10))

    alarm.judge(replace(_difference(0.0), num_tokens=0))
    alarm.judge(_difference(0.002))

    assert alarm.healthy == 0.002
