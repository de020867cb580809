from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest

from cast_ray.errors import RunDirectoryError
from cast_ray.runs.metrics import (
    METRIC_TYPES,
    METRICS,
    StepMetrics,
    metric_texts,
    read_metrics,
    read_metrics_frame,
    write_metrics,
)
from tests.support.refusals import refused


def row_of(step: int, **changes: float | None) -> StepMetrics:
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
    rows = [row_of(1), row_of(2, validation_success=0.25)]
    write_metrics(tmp_path / "metrics.parquet", rows)
    assert read_metrics(tmp_path / "metrics.parquet") == rows
    assert pl.read_parquet(tmp_path / "metrics.parquet")["validation_success"].to_list() == [
        None,
        0.25,
    ]


def test_file_of_another_version_is_refused_with_the_columns_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    write_metrics(path, [row_of(1)])
    pl.read_parquet(path).rename({"kl": "divergence"}).write_parquet(path)
    with pytest.raises(RunDirectoryError) as refused:
        read_metrics(path)
    assert all(part in str(refused.value) for part in (str(path), "divergence", "kl"))


def test_every_metric_has_a_type_of_the_file_and_a_text() -> None:
    assert list(METRICS) == [item.name for item in fields(StepMetrics)]
    assert all(metric_texts()[name].endswith(".") for name in METRICS)


def test_no_file_means_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.parquet") == []


def test_a_missing_value_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    write_metrics(path, [row_of(1), row_of(2)])
    frame = pl.read_parquet(path)
    frame.with_columns(step=pl.Series([1, None], dtype=frame["step"].dtype)).write_parquet(path)
    for read in (read_metrics, read_metrics_frame):
        with refused(RunDirectoryError, str(path), "step"):
            read(path)
