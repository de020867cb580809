from pathlib import Path

import numpy as np
import polars as pl

from cast_ray.metrics import StepMetrics, read_metrics, success_rate, write_metrics


def _row(step: int, **changes: float | None) -> StepMetrics:
    values: dict = {
        name: 0.5 if "float" in str(kind) else 3
        for name, kind in StepMetrics.__annotations__.items()
    }
    return StepMetrics(**{**values, "step": step, "validation_success": None, **changes})


def test_rows_survive_the_file_and_null_stays_null(tmp_path: Path) -> None:
    rows = [_row(1), _row(2, validation_success=0.25)]
    write_metrics(tmp_path / "metrics.parquet", rows)
    assert read_metrics(tmp_path / "metrics.parquet") == rows
    assert pl.read_parquet(tmp_path / "metrics.parquet")["validation_success"].to_list() == [
        None,
        0.25,
    ]


def test_no_file_means_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.parquet") == []


def test_success_counts_attempts_and_the_interval_holds_the_rate() -> None:
    result = success_rate(["a", "a", "b", "b", "c", "c"], [1, 0, 1, 1, 0, 0], seed=0)
    assert result.n == 6
    assert result.success == 0.5
    assert 0.0 <= result.low < 0.5 < result.high <= 1.0


def test_attempts_at_one_puzzle_are_resampled_together() -> None:
    """Four equal attempts at each of 50 puzzles say no more than one attempt at each."""
    rewards = np.random.default_rng(0).integers(0, 2, 50)
    puzzles = [str(index) for index in range(50)]
    single = success_rate(puzzles, rewards, seed=1)
    repeated = success_rate(np.repeat(puzzles, 4).tolist(), np.repeat(rewards, 4), seed=1)
    assert (repeated.low, repeated.high) == (single.low, single.high)
