"""The training loop with doubles of its remote parts: what a step writes and a resume reads."""

from __future__ import annotations

import contextlib
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cast_ray.config.load import load_config
from cast_ray.datasets.splits import Boards
from cast_ray.errors import LearnerError, TrajectoryError
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.learner.logprob_check import LogprobDifference
from cast_ray.learner.settings import UpdateStats
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.runs.metrics import METRICS, read_metrics, write_metrics
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.tracking import TrackedRun, Tracking
from cast_ray.training.collector import RolloutCollector
from cast_ray.training.loop import TrainingLoop
from cast_ray.training.run import Run
from cast_ray.training.snapshot import Look
from cast_ray.training.update import Learned
from solver_actors.sokoban.table import solve_sokoban
from tests.support.scripted import build_test_policy
from tests.training.test_collector import PlayedHere

OVERRIDES = (
    "steps=2",
    "rollout.puzzles_per_step=4",
    "rollout.group_size=2",
    "learner.mini_batches=1",
    "learner.max_skipped_updates=3",
    "evaluation.every=0",
)


def learned(*, is_applied: bool = True) -> Learned:
    stats = UpdateStats(
        is_applied=is_applied,
        loss=0.5,
        grad_norm=1.0,
        num_tokens=2,
        clip_fraction=0.0,
        entropy=1.0,
        kl=0.0,
        seconds=0.1,
    )
    difference = LogprobDifference(
        mean=0.001, largest=0.01, num_tokens=2, kl=0.0, share_beyond_cap=0.0
    )
    return Learned(difference=difference, updates=[stats] * 3, seconds=0.25)


class ScriptedLearner:
    """Says what came of updates and syncs instead of doing them."""

    def __init__(self, result: Learned) -> None:
        self._result = result

    def call(self, work: Callable[[Any], Any]) -> Any:
        results = {"take_updates": self._result, "sync": 0.125}
        return results[work.__name__] if work.__name__ in results else work(self)

    def set_restore(self, restore: Callable[[Any], None]) -> None:
        pass


class ScriptedWorkers:
    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self.collector = RolloutCollector(PlayedHere(tokenizer))

    at_release: Callable[[], None] = staticmethod(lambda: None)
    """Called where the learner's memory is released, and a rank may be lost."""

    @contextlib.contextmanager
    def engines_at_rest(self, release_memory: object) -> Iterator[None]:
        yield
        self.at_release()


class StillMonitor:
    """Every look sees the same: no engine, no actor."""

    def look(self) -> Look:
        return Look(at=0.0, engines=(), pool={}, lost_groups=0, memory_bytes={"driver": 2**20})

    def looks_since(self, first: Look) -> list[Look]:
        return [first, self.look()]


class NoRecoveries:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()


class NoExporter:
    def step(self, row: object) -> None:
        pass

    def columns(self, values: object) -> None:
        pass


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def puzzles() -> list[Puzzle]:
    return build_puzzles(
        game="sokoban",
        tier="mini",
        count=30,
        seed=2,
        solve=lambda state: float(solve_sokoban(state).cost_to_go([state])[0]),
    )


@pytest.fixture
def run(tmp_path: Path, puzzles: list[Puzzle]) -> Run:
    config = load_config(None, OVERRIDES)
    directory = RunDirectory.create(tmp_path / "run", config)
    progress = TrainProgress(Console(file=io.StringIO(), width=200))
    return Run(config, directory, progress, Boards(train=puzzles, validation=[], held_out=[]), "id")


@pytest.fixture
def workers(tokenizer: ChatTokenizer) -> Iterator[ScriptedWorkers]:
    workers = ScriptedWorkers(tokenizer)
    yield workers
    workers.collector.close()


def loop_of(run: Run, workers: ScriptedWorkers, result: Learned) -> TrainingLoop:
    parts: Any = (run, workers, ScriptedLearner(result))
    others: Any = {
        "monitor": StillMonitor(),
        "recoveries": NoRecoveries(),
        "exporter": NoExporter(),
        "tracking": Tracking(
            (), TrackedRun(directory=run.directory.path, config=run.config), warn=print
        ),
    }
    return TrainingLoop(*parts, **others)


def test_step_writes_its_trajectories_and_its_row(run: Run, workers: ScriptedWorkers) -> None:
    loop = loop_of(run, workers, learned())
    loop.catch_up()

    row = loop.take_step(1)
    loop.settle()

    assert loop.steps_done == 1
    assert run.directory.read_trajectories(1).num_rows == row.num_trajectories == 8
    assert [one.step for one in read_metrics(run.directory.metrics)] == [1]
    assert (row.step, row.staleness_max, row.weight_version) == (1, 0, 1)
    assert (row.layer_error, row.seconds_learner, row.loss) == (0.125, 0.25, 0.5)
    assert not row.is_replayed


def test_resumed_run_learns_from_the_log_and_writes_the_missing_row(
    run: Run, workers: ScriptedWorkers
) -> None:
    first = loop_of(run, workers, learned())
    first.catch_up()
    played = first.take_step(1)
    first.settle()
    run.directory.metrics.unlink()  # as if the driver was lost before it wrote the row

    again = loop_of(replace(run, goes_on=run.directory.resume_point()), workers, learned())
    again.catch_up()
    again.settle()

    assert again.steps_done == 1
    (row,) = read_metrics(run.directory.metrics)
    assert row.is_replayed
    assert math.isnan(row.memory_driver_mib) and math.isnan(row.layer_error)
    live = {name for name, metric in METRICS.items() if metric.is_live}
    of_play = {"is_replayed", "layer_error", "tokens_per_s", "seconds_total", "seconds_sync"}
    for name in METRICS.keys() - live - of_play:
        assert getattr(row, name) == getattr(played, name), name


def test_step_that_stops_the_run_is_taken_out_of_the_log(
    run: Run, workers: ScriptedWorkers
) -> None:
    loop = loop_of(run, workers, learned(is_applied=False))
    loop.catch_up()

    with pytest.raises(LearnerError, match="step-00001"):
        loop.take_step(1)
    loop.settle()

    assert not run.directory.trajectory_file(1).exists()
    assert run.directory.inspection(1).is_file()
    assert loop.steps_done == 0


def test_a_rank_lost_while_engines_return_learns_the_step_again(
    run: Run, workers: ScriptedWorkers
) -> None:
    loop = loop_of(run, workers, learned())
    seen: list[int] = []
    loop.catch_up()
    workers.at_release = lambda: seen.append(loop.steps_done)

    loop.take_step(1)
    loop.settle()

    assert seen == [1]  # up to here a new rank is brought


def test_validations_that_a_lost_driver_had_under_way_are_made_again(
    run: Run, workers: ScriptedWorkers
) -> None:
    config = load_config(None, [*OVERRIDES, "evaluation.every=1", "max_staleness=1"])
    validation = run.boards.train[:2]
    run = replace(run, config=config, boards=replace(run.boards, validation=validation))
    first = loop_of(run, workers, learned())
    first.catch_up()
    for step in (1, 2):
        first.take_step(step)
    first.settle()
    rows = read_metrics(run.directory.metrics)
    validated = [row.validation_success for row in rows]
    assert None not in validated
    lost = [replace(row, validation_success=None, seconds_validation=0.0) for row in rows]
    write_metrics(run.directory.metrics, lost)

    again = loop_of(replace(run, goes_on=run.directory.resume_point()), workers, learned())
    again.catch_up()
    again.settle()

    assert again.steps_done == 2
    found = [row.validation_success for row in read_metrics(run.directory.metrics)]
    assert found == validated


def test_token_that_is_too_old_is_never_trained_on(run: Run, workers: ScriptedWorkers) -> None:
    """The double's tokens are of version 1, so they are one step too old for step 2."""
    loop = loop_of(run, workers, learned())
    loop.catch_up()
    loop.take_step(1)

    with pytest.raises(TrajectoryError, match=r"\b1 step.*max_staleness.* 0"):
        loop.take_step(2)
    loop.settle()
