"""What a checkpoint counts on in the run directory is there, or the resume is refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from cast_ray.config.learning import AdvantageConfig
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import Boards
from cast_ray.errors import RunDirectoryError
from cast_ray.games.puzzles import Puzzle
from cast_ray.learner.settings import UpdateStats
from cast_ray.runs.directories import make_partial, partial_path, publish
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.algorithm.branch import branch_run
from cast_ray.training.resume import TrainingState, restore, training_state
from cast_ray.training.run import Run
from cast_ray.training.update import SkippedUpdates

NUM_STEPS, ROWS_A_STEP = 3, 4


class StoredLearner:
    """A learner whose checkpoints hold nothing but the caller's part."""

    def __init__(self) -> None:
        self.loaded: list[Path] = []

    def load_checkpoint(self, directory: Path) -> dict[str, Any]:
        self.loaded.append(directory)
        return json.loads((directory / "learner.json").read_text())


def puzzle(name: str) -> Puzzle:
    return Puzzle(
        game="sokoban",
        tier="mini",
        puzzle_id=name,
        board="",
        cost_to_go=1,
        cost_status="exact",
        seed=0,
    )


@pytest.fixture
def told() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def run(tmp_path: Path, told: io.StringIO) -> Run:
    """Stopped in step 4, with checkpoints after steps 1 and 3."""
    directory = RunDirectory.create(tmp_path / "run", TrainConfig())
    boards = Boards(train=[puzzle("a"), puzzle("b")], validation=[], held_out=[])
    progress = TrainProgress(Console(file=told, width=1000))
    run = Run(TrainConfig(), directory, progress, boards, "id")
    for step in range(1, NUM_STEPS + 1):
        directory.write_trajectories(step, pa.table({"group": list(range(ROWS_A_STEP))}))
        if step != 2:
            state = training_state(run, step=step, healthy=0.01, skipped_updates=2)
            path = directory.checkpoint(step)
            (make_partial(path) / "learner.json").write_text(json.dumps(state.to_json()))
            publish(partial_path(path), path)
    directory.write_trajectories(4, pa.table({"group": [0]}))
    return replace(run, goes_on=directory.resume_point())


def test_new_run_begins_with_version_1_and_loads_nothing(run: Run) -> None:
    learner = StoredLearner()

    state = restore(replace(run, goes_on=None), learner)

    assert (state.step, state.weight_version, state.skipped_updates) == (0, 1, 0)
    assert state.healthy_logprob_abs_diff is None
    assert learner.loaded == []


def test_resumed_run_has_all_that_it_had_and_says_where_it_goes_on(
    run: Run, told: io.StringIO
) -> None:
    learner = StoredLearner()

    state = restore(run, learner)

    assert learner.loaded == [run.directory.checkpoint(3)]
    assert (state.step, state.weight_version, state.skipped_updates) == (3, 4, 2)
    assert state.healthy_logprob_abs_diff == 0.01
    assert state.trajectory_log.num_rows == NUM_STEPS * ROWS_A_STEP
    assert str(run.directory.checkpoint(3)) in told.getvalue()


def test_steps_after_the_checkpoint_stay_to_be_learned_again(run: Run) -> None:
    restore(run, StoredLearner())

    assert run.directory.last_logged_step == 4


def test_run_without_checkpoint_learns_again_from_all_its_trajectories(
    run: Run, told: io.StringIO
) -> None:
    for step in (1, 3):
        run.directory.checkpoint(step).rename(run.directory.path / f"elsewhere-{step}")

    state = restore(replace(run, goes_on=run.directory.resume_point()), StoredLearner())

    assert state.weight_version == 1
    assert run.directory.last_logged_step == 4
    assert "no checkpoint yet" in told.getvalue()


def test_a_branch_with_other_values_begins_at_the_checkpoint(run: Run, tmp_path: Path) -> None:
    """Step 4 was played and scored after it, by the old values."""
    same = branch_run(run.directory, TrainConfig(run_dir=str(tmp_path / "same")))
    other = branch_run(
        run.directory,
        TrainConfig(run_dir=str(tmp_path / "other"), advantage=AdvantageConfig(alpha=0.9)),
    )

    assert RunDirectory(Path(same.run_dir)).last_logged_step == 4
    branch = RunDirectory(Path(other.run_dir))
    assert branch.last_logged_step == branch.resume_point().step == 3
    assert branch.inspection(4).is_file()
    assert run.directory.last_logged_step == 4


def test_missing_trajectory_file_is_named_and_nothing_is_forgotten(run: Run) -> None:
    run.directory.trajectory_file(2).unlink()

    with pytest.raises(RunDirectoryError, match=r"step-00002\.parquet"):
        restore(run, StoredLearner())

    assert run.directory.trajectory_file(4).is_file()


def test_trajectory_file_that_was_cut_is_named(run: Run) -> None:
    path = run.directory.trajectory_file(1)
    path.write_bytes(path.read_bytes()[:-10])

    with pytest.raises(RunDirectoryError, match=r"step-00001\.parquet"):
        restore(run, StoredLearner())


def test_trajectory_file_with_other_rows_is_refused(run: Run) -> None:
    run.directory.write_trajectories(2, pa.table({"group": [0]}))

    with pytest.raises(RunDirectoryError, match=r"trajectories.* 9 .* 12\b"):
        restore(run, StoredLearner())


def test_other_training_puzzles_are_refused(run: Run) -> None:
    boards = replace(run.boards, train=[puzzle("b"), puzzle("a")])

    with pytest.raises(RunDirectoryError, match=r"train\.parquet"):
        restore(replace(run, boards=boards), StoredLearner())


def test_state_comes_back_from_json_as_it_was(run: Run) -> None:
    state = training_state(run, step=3, healthy=None, skipped_updates=0)

    assert TrainingState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_updates_that_were_skipped_before_a_resume_are_counted(tmp_path: Path) -> None:
    skipped = SkippedUpdates(most=3, in_a_row=1)
    stats = UpdateStats(
        is_applied=False,
        loss=float("nan"),
        grad_norm=float("nan"),
        num_tokens=1,
        clip_fraction=0,
        entropy=0,
        kl=0,
        seconds=0,
    )

    skipped.judge([stats], tmp_path / "batch")

    assert skipped.in_a_row == 2
