import logging

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.errors import WeightSyncError
from cast_ray.sync_check import LogprobAlarm, LogprobDifference, logprob_difference


def _difference(mean: float) -> LogprobDifference:
    return LogprobDifference(mean=mean, largest=10 * mean, num_tokens=100)


def _alarm() -> LogprobAlarm:
    alarm = LogprobAlarm(warn_ratio=3, stop_ratio=10)
    alarm.judge(_difference(0.002))
    return alarm


def test_only_tokens_in_the_loss_are_compared() -> None:
    batch = pa.table(
        {
            "loss_mask": pa.array([[0, 1, 1]], pa.list_(pa.uint8())),
            "rollout_logprobs": pa.array([[0.0, -1.0, -2.0]], pa.list_(pa.float32())),
        }
    )

    difference = logprob_difference(batch, np.array([-99.0, -1.5, -2.0], np.float32))

    assert difference == LogprobDifference(mean=0.25, largest=0.5, num_tokens=2)


def test_the_first_difference_is_the_healthy_level() -> None:
    assert _alarm().healthy == 0.002


def test_a_first_difference_beyond_all_arithmetic_stops_the_run() -> None:
    with pytest.raises(WeightSyncError, match="right after the first sync"):
        LogprobAlarm(warn_ratio=3, stop_ratio=10).judge(_difference(1.5))


def test_twice_the_healthy_level_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _alarm().judge(_difference(0.004))
    assert not caplog.records


def test_three_times_the_healthy_level_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _alarm().judge(_difference(0.0061))
    assert "3.0 times" in caplog.text or "3.1 times" in caplog.text


def test_ten_times_the_healthy_level_stops_the_run() -> None:
    with pytest.raises(WeightSyncError, match="does not hold the learner's weights"):
        _alarm().judge(_difference(0.0201))


def test_a_resumed_alarm_keeps_its_level() -> None:
    alarm = LogprobAlarm(warn_ratio=3, stop_ratio=10, healthy=0.001)
    with pytest.raises(WeightSyncError):
        alarm.judge(_difference(0.02))
    assert alarm.healthy == 0.001
