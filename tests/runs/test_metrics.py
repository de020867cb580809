from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tensorboardX.proto.event_pb2 import Event

from cast_ray.errors import EnvironmentSetupError
from cast_ray.runs.metrics import StepMetrics, read_metrics, write_metrics
from cast_ray.runs.metrics_log import MetricsLog
from tests.support.full_disk import full_disk


def _row(step: int, **changes: float | None) -> StepMetrics:
    of_type = {
        "int": 3,
        "float": 0.5,
        "float | None": 0.5,
        "bool": False,
        "tuple[int, ...]": (5, 2),
        "tuple[float, ...]": (0.25, 0.75),
    }
    values: dict = {name: of_type[str(kind)] for name, kind in StepMetrics.__annotations__.items()}
    return StepMetrics(**{**values, "step": step, "validation_success": None, **changes})


def test_rows_survive_the_file_and_null_stays_null(tmp_path: Path) -> None:
    rows = [_row(1), _row(2, validation_success=0.25)]
    write_metrics(tmp_path / "metrics.parquet", rows)
    assert read_metrics(tmp_path / "metrics.parquet") == rows
    assert pl.read_parquet(tmp_path / "metrics.parquet")["validation_success"].to_list() == [
        None,
        0.25,
    ]


def test_deadlocks_of_an_older_file_are_read_as_losses(tmp_path: Path) -> None:
    rows = [_row(1, lost_fraction=0.25)]
    write_metrics(tmp_path / "new.parquet", rows)
    older = pl.read_parquet(tmp_path / "new.parquet").rename({"lost_fraction": "deadlock_fraction"})
    older.write_parquet(tmp_path / "old.parquet")
    assert read_metrics(tmp_path / "old.parquet") == rows


def test_older_file_without_dropped_groups_dropped_none(tmp_path: Path) -> None:
    write_metrics(tmp_path / "new.parquet", [_row(1)])
    pl.read_parquet(tmp_path / "new.parquet").drop("dropped_groups").write_parquet(
        tmp_path / "old.parquet"
    )
    assert read_metrics(tmp_path / "old.parquet") == [_row(1, dropped_groups=0)]


def test_file_from_before_references_and_skipped_updates_is_still_read(tmp_path: Path) -> None:
    added = ["kl", "skipped_updates", "rollout_kl", "rollout_clip_fraction"]
    write_metrics(tmp_path / "new.parquet", [_row(1)])
    pl.read_parquet(tmp_path / "new.parquet").drop(added).write_parquet(tmp_path / "old.parquet")

    [row] = read_metrics(tmp_path / "old.parquet")

    assert (row.success, row.kl, row.skipped_updates) == (0.5, 0.0, 0)
    assert np.isnan([row.rollout_kl, row.rollout_clip_fraction]).all()


def test_no_file_means_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.parquet") == []


def test_log_writes_what_tensorboard_reads(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.parquet", tmp_path / "tensorboard")
    log.append(_row(1))
    log.append(_row(2, validation_success=0.25))
    log.close()

    (file,) = (tmp_path / "tensorboard").iterdir()
    found = [
        (event.step, value.tag, value.simple_value)
        for event in _events(file)
        for value in event.summary.value
    ]
    assert (1, "train/success", 0.5) in found
    assert (2, "time/seconds_learner", 0.5) in found
    assert [row for row in found if row[1] == "train/validation_success"] == [
        (2, "train/validation_success", 0.25)
    ]


def test_full_disk_ends_a_log_at_once_and_in_one_sentence(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.parquet", tmp_path / "tensorboard")
    with (
        pytest.raises(EnvironmentSetupError, match=r"tensorboard cannot be written"),
        full_disk(60_000),  # the table has room, the events of all steps together have not
    ):
        for step in range(100):
            log.append(_row(step))


def _events(file: Path) -> list[Event]:
    """Return the events of a file: length, 4 bytes of checksum, event, 4 bytes of checksum."""
    data, events = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events
