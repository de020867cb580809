"""Updates that are not finite: counted over steps, forgiven by a good one, three stop the run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cast_ray.errors import LearnerError
from cast_ray.learner.settings import UpdateStats
from cast_ray.training.update import SkippedUpdates


def stats(*, is_applied: bool) -> UpdateStats:
    return UpdateStats(
        is_applied=is_applied,
        loss=0.1 if is_applied else math.nan,
        grad_norm=1.0,
        num_tokens=2,
        clip_fraction=0.0,
        entropy=1.0,
        kl=0.0,
        seconds=0.1,
    )


GOOD, BAD = stats(is_applied=True), stats(is_applied=False)


def test_third_in_a_row_stops_the_run_and_names_the_batch(tmp_path: Path) -> None:
    skipped = SkippedUpdates(most=3)
    skipped.judge([GOOD, BAD], tmp_path / "inspection" / "step-00001.parquet")

    with pytest.raises(LearnerError, match=r"\b3 updates.*step-00002\.parquet"):
        skipped.judge([BAD, BAD], tmp_path / "inspection" / "step-00002.parquet")


def test_good_update_between_bad_ones_lets_the_run_go_on(tmp_path: Path) -> None:
    skipped = SkippedUpdates(most=3)

    skipped.judge([BAD, BAD, GOOD], tmp_path / "step.parquet")
    skipped.judge([BAD, BAD, GOOD, BAD], tmp_path / "step.parquet")

    assert skipped.in_a_row == 1
    assert not list(tmp_path.iterdir())


def test_resumed_run_goes_on_counting(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match=r"\b3 updates.*step\.parquet"):
        SkippedUpdates(most=3, in_a_row=2).judge([BAD], tmp_path / "step.parquet")
