"""The state of a run in its checkpoint, and the check that the run directory agrees with it."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any

from cast_ray.errors import DamagedFileError, RunDirectoryError
from cast_ray.files import checked
from cast_ray.learner.group import LearnerGroup
from cast_ray.parquet import read_table
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerPosition:
    """Everything that decides which puzzles ``PuzzleSampler`` draws next."""

    step: int
    """Steps drawn."""
    seed: int
    puzzles_per_step: int
    puzzles_crc32: int
    """Checksum of the training puzzles' ids, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryLog:
    """What ``trajectories/`` held when the checkpoint was written."""

    last_step: int
    num_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """The training loop's part of a checkpoint."""

    step: int
    """Steps done."""
    weight_version: int
    """Of the checkpoint's weights: version v plays step v."""
    healthy_logprob_abs_diff: float | None
    """See ``learner.logprob_check.LogprobAlarm``."""
    skipped_updates: int
    """Consecutive ones, up to the last update."""
    sampler: SamplerPosition
    trajectory_log: TrajectoryLog

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values, for ``from_json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> TrainingState:
        """Return the state that ``to_json`` wrote."""
        return checked(cls, state)


def training_state(
    run: Run, *, step: int, healthy: float | None, skipped_updates: int
) -> TrainingState:
    """Return a run's state after a step whose trajectories are written; step 0 = the start."""
    return TrainingState(
        step=step,
        weight_version=step + 1,
        healthy_logprob_abs_diff=healthy,
        skipped_updates=skipped_updates,
        sampler=_sampler_position(run, step),
        trajectory_log=_trajectory_log(run.directory, step),
    )


def restore(run: Run, learner: LearnerGroup) -> TrainingState:
    """Load the newest checkpoint into the learner and return the state stored with it.

    Raises:
        RunDirectoryError: trajectories or puzzles that the checkpoint depends on are missing.
    """
    if run.goes_on is None:
        return training_state(run, step=0, healthy=None, skipped_updates=0)
    run.progress.note(str(run.goes_on))
    if run.goes_on.checkpoint is None:
        state = training_state(run, step=0, healthy=None, skipped_updates=0)
    else:
        state = TrainingState.from_json(learner.load_checkpoint(run.goes_on.checkpoint))
        _check_agrees(run, state)
    return state


def _check_agrees(run: Run, state: TrainingState) -> None:
    """Raise RunDirectoryError unless the run directory holds what the checkpoint depends on."""
    directory = run.directory
    if state.sampler != _sampler_position(run, state.step):
        raise RunDirectoryError(
            f"the training puzzles in {directory.puzzles} are not those that step {state.step} was "
            "drawn from: restore train.parquet, or start a new run with another run_dir=PATH"
        )
    found = _trajectory_log(directory, state.trajectory_log.last_step)
    if found != state.trajectory_log:
        raise RunDirectoryError(
            f"{directory.trajectories} holds {found.num_rows} trajectories up to step "
            f"{found.last_step}, but the checkpoint expects {state.trajectory_log.num_rows}: "
            "restore the files, or start a new run with another run_dir=PATH"
        )


def _sampler_position(run: Run, step: int) -> SamplerPosition:
    ids = "\n".join(puzzle.puzzle_id for puzzle in run.boards.train)
    return SamplerPosition(
        step=step,
        seed=run.config.seed,
        puzzles_per_step=run.config.rollout.puzzles_per_step,
        puzzles_crc32=zlib.crc32(ids.encode()),
    )


def _trajectory_log(directory: RunDirectory, last_step: int) -> TrajectoryLog:
    """Return what the files up to a step contain.

    Raises:
        RunDirectoryError: a step's file is missing or cannot be read.
    """
    num_rows = 0
    for step in range(1, last_step + 1):
        path = directory.trajectory_file(step)
        try:
            num_rows += len(read_table(path, []))
        except DamagedFileError as error:
            raise RunDirectoryError(
                f"{error}, or start a new run with another run_dir=PATH: the checkpoint after step "
                f"{last_step} depends on it"
            ) from error
    return TrajectoryLog(last_step=last_step, num_rows=num_rows)
