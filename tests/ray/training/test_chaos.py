"""A run whose parts are killed one after the other, on a Ray of its own (large: ``make chaos``)."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from cast_ray.runs.recoveries import read_recoveries
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.replay.replay import replay_run
from cast_ray.training.replay.updates import replay_updates
from tests.chaos import Chaos

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]

STEPS = 7
VICTIMS = ("environment", "oracle", "core", "driver")
OVERRIDES = [
    f"steps={STEPS}",
    "max_staleness=1",
    "puzzles.num_train=200",
    "puzzles.num_validation=4",
    "puzzles.num_held_out=8",
    "warm_start.steps=20",
    "warm_start.careless_steps=5",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=4",
    "rollout.group_size=4",
    "resources.oracle_actors=2",
    "evaluation.every=3",
    "evaluation.held_out_attempts=1",
    "checkpoint_every=3",
]


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    """The run, ended by itself after a kill in its warm start and four at whatever it was doing."""
    chaos = Chaos(tmp_path_factory.mktemp("chaos") / "run", OVERRIDES, machines=None)
    chaos.kill_learner_in_warm_start()
    chaos.wait_for_step(1, timeout_s=600)
    for step, kind in enumerate(VICTIMS, start=1):
        chaos.wait_for_step(step, timeout_s=300)
        chaos.kill(kind)
    code = chaos.finish(timeout_s=600)
    assert code == 0, chaos.output.read_text()
    yield chaos
    chaos.stop()


def test_run_ends_by_itself_and_leaves_no_process(chaos: Chaos) -> None:
    assert [kill.kind for kill in chaos.kills] == list(VICTIMS)
    assert chaos.left_over() == []


def test_every_recovery_is_on_disk_and_in_the_metrics(chaos: Chaos) -> None:
    found = {recovery.kind for recovery in read_recoveries(chaos.run_dir / "recoveries.jsonl")}
    assert found >= {"environment", "oracle", "engine", "driver"}
    metrics = pl.read_parquet(chaos.run_dir / "metrics.parquet")
    assert metrics["step"].to_list() == list(range(1, STEPS + 1))
    assert metrics["recovered_driver"].sum() == 2
    assert metrics["staleness_max"].max() <= 1


def test_every_issued_group_is_there_once_and_follows_from_its_log(chaos: Chaos) -> None:
    report = replay_run(chaos.run_dir)
    assert report.differences == ()
    assert report.num_trajectories == STEPS * 16 + 2 * 8
    assert list(RunDirectory(chaos.run_dir).groups.iterdir()) == []


def test_weights_are_those_of_the_log_replayed_without_interruption(chaos: Chaos) -> None:
    found = replay_updates(chaos.run_dir)
    assert found.num_steps == STEPS
    assert len(found.compared) >= 3
    assert found.differing == ()
