from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest
from tensorboardX.proto.event_pb2 import Event

from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from cast_ray.runs.metrics import (
    METRIC_TYPES,
    METRICS,
    StepMetrics,
    metric_texts,
    read_metrics,
    write_metrics,
)
from cast_ray.runs.metrics_log import MetricsLog
from tests.support.full_disk import full_disk


def _row(step: int, **changes: float | None) -> StepMetrics:
    of_type: dict = {
        int: 3,
        float: 0.5,
        float | None: 0.5,
        bool: False,
        tuple[int, ...]: (5, 2),
        tuple[float, ...]: (0.25, 0.75),
    }
    values = {name: of_type[kind] for name, kind in METRIC_TYPES.items()}
    return StepMetrics(**{**values, "step": step, "validation_success": None, **changes})


def test_rows_survive_the_file_and_null_stays_null(tmp_path: Path) -> None:
    rows = [_row(1), _row(2, validation_success=0.25)]
    write_metrics(tmp_path / "metrics.parquet", rows)
    assert read_metrics(tmp_path / "metrics.parquet") == rows
    assert pl.read_parquet(tmp_path / "metrics.parquet")["validation_success"].to_list() == [
        None,
        0.25,
    ]


def test_file_of_another_version_is_refused_with_the_columns_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    write_metrics(path, [_row(1)])
    pl.read_parquet(path).rename({"kl": "divergence"}).write_parquet(path)
    with pytest.raises(RunDirectoryError) as refused:
        read_metrics(path)
    assert all(part in str(refused.value) for part in (str(path), "divergence", "kl"))


def test_every_metric_has_a_type_of_the_file_and_a_text() -> None:
    assert list(METRICS) == [item.name for item in fields(StepMetrics)]
    assert all(metric_texts()[name].endswith(".") for name in METRICS)


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
        pytest.raises(EnvironmentSetupError, match=r"tensorboard.*space"),
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
