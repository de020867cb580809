"""Steps taken while others are played: the real loop, with a simulated engine and learner."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.asynchronous import simulated_steps
from cast_ray.rollout.trajectory import NOT_THE_POLICY

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

STEPS = 8


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_rollouts_go_on_while_the_learner_works_and_no_token_is_older_than_the_bound(
    tmp_path: Path, bound: int
) -> None:
    rows = simulated_steps(tmp_path / "run", STEPS, max_staleness=bound, learner_s=0.5)

    assert [row.step for row in rows] == list(range(1, STEPS + 1))
    # Strict, and used: with the learner this slow, the last steps are played as early as they may.
    assert [row.staleness_max for row in rows] == [min(step, bound) for step in range(STEPS)]
    for row in rows:
        assert sum(row.staleness_tokens) == row.tokens
        assert len(row.staleness_tokens) == row.staleness_max + 1
    oldest = [_oldest_version(tmp_path / "run", step) for step in range(1, STEPS + 1)]
    assert oldest == [max(step - bound, 1) for step in range(1, STEPS + 1)]


def _oldest_version(run: Path, step: int) -> int:
    table = pl.read_parquet(run / "trajectories" / f"step-{step:05d}.parquet")
    versions = table["weight_versions"].explode()
    return int(versions.filter(versions != NOT_THE_POLICY).min())  # type: ignore[arg-type]
