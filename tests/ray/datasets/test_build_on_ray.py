"""Data sets built by Ray tasks."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cast_ray.datasets.build import BuildProgress, BuildSettings, build_data_set
from cast_ray.datasets.chunks import this_process
from cast_ray.datasets.chunks_on_ray import ray_tasks
from cast_ray.games.generators import PuzzleSource
from cast_ray.games.generators.collection import SplitRule

pytestmark = pytest.mark.ray

MINI = BuildSettings(
    source=PuzzleSource(game="sokoban", tier="mini", seed=0),
    rule=SplitRule(num_test=20, num_train=700),  # three chunks
)


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_ray_tasks_give_the_bytes_of_one_process(tmp_path: Path) -> None:
    progress = BuildProgress(Console(file=StringIO()))
    with this_process() as workers:
        build_data_set(MINI, tmp_path / "one", workers=workers, progress=progress)
    with ray_tasks(2) as workers:
        build_data_set(MINI, tmp_path / "ray", workers=workers, progress=progress)
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")
    assert contents(tmp_path / "one").keys() == {"test.parquet", "train.parquet"}
