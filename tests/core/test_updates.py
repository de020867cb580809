"""Updates that are not finite: counted over steps, forgiven by a good one, three stop the run."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray.errors import LearnerError
from cast_ray.jobs.updates import SkippedUpdates
from cast_ray.learner_settings import UpdateStats

BATCH = pa.table({"token_advantages": pa.array([[0.5, math.nan]], pa.list_(pa.float32()))})


def stats(*, is_applied: bool) -> UpdateStats:
    return UpdateStats(
        is_applied=is_applied,
        loss=0.1 if is_applied else math.nan,
        grad_norm=1.0,
        num_tokens=2,
        clip_fraction=0.0,
        entropy=1.0,
        kl=0.0,
        ratio_max=1.0,
        seconds=0.1,
    )


GOOD, BAD = stats(is_applied=True), stats(is_applied=False)


def test_third_in_a_row_stops_the_run_and_keeps_the_batch(tmp_path: Path) -> None:
    skipped = SkippedUpdates(most=3)
    skipped.judge([GOOD, BAD], BATCH, tmp_path / "inspection" / "step-00001.parquet")

    with pytest.raises(LearnerError, match=r"3 updates in a row .*step-00002\.parquet"):
        skipped.judge([BAD, BAD], BATCH, tmp_path / "inspection" / "step-00002.parquet")

    assert [path.name for path in (tmp_path / "inspection").iterdir()] == ["step-00002.parquet"]
    kept = pq.read_table(tmp_path / "inspection" / "step-00002.parquet")
    assert str(kept.to_pydict()) == str(BATCH.to_pydict())  # nan is not equal to itself


def test_good_update_between_bad_ones_lets_the_run_go_on(tmp_path: Path) -> None:
    skipped = SkippedUpdates(most=3)

    skipped.judge([BAD, BAD, GOOD], BATCH, tmp_path / "step.parquet")
    skipped.judge([BAD, BAD, GOOD, BAD], BATCH, tmp_path / "step.parquet")

    assert skipped.in_a_row == 1
    assert not list(tmp_path.iterdir())


def test_resumed_run_goes_on_counting(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="3 updates in a row"):
        SkippedUpdates(most=3, in_a_row=2).judge([BAD], BATCH, tmp_path / "step.parquet")
