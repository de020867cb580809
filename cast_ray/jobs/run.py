"""A training run before its parts start: input checked, directory made or reopened, boards read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cast_ray.config import TrainConfig
from cast_ray.config_learning import ObjectiveConfig
from cast_ray.errors import ConfigError, ModelError, RunDirectoryError
from cast_ray.games import get_game
from cast_ray.jobs.boards import HELD_OUT, Boards, make_boards, read_boards, write_boards
from cast_ray.progress import TrainProgress
from cast_ray.run_directory import ResumePoint, RunDirectory
from cast_ray.small_policy import read_chat_pieces


@dataclass(slots=True)
class Run:
    """What every phase of the job needs."""

    config: TrainConfig
    directory: RunDirectory
    progress: TrainProgress
    boards: Boards
    run_id: str
    goes_on: ResumePoint | None = None
    """Where a resumed run does; None = a new run."""
    lost_at: float | None = None
    """When the driver was lost that this one takes the place of, as ``time.time``; None = it takes
    nobody's."""
    earlier_ids: list[str] = field(default_factory=list)
    """``run_id`` of the drivers that trained here before: what they left behind is this run's."""


def open_run(
    config: TrainConfig,
    *,
    resume: bool,
    progress: TrainProgress,
    lost_at: float | None = None,
) -> Run:
    """Make a new run, or open an interrupted one.

    Raises:
        CastRayError: bad input; nothing was written.
    """
    _check_reference(config.objective)
    if resume:
        directory, goes_on = _reopen(config, progress)
    else:
        directory, goes_on = _create(config, progress), None
    # Different for every start: a run that was killed may have left actors of its name behind.
    run_id = f"{directory.path.name}-{datetime.now(UTC).strftime('%H%M%S%f')}"
    earlier = directory.note_start(run_id)
    boards = read_boards(directory.puzzles)
    return Run(config, directory, progress, boards, run_id, goes_on, lost_at, earlier)


def _check_reference(objective: ObjectiveConfig) -> None:
    """Raise ModelError if the reference model that the objective needs is not where it should be.

    The learner loads it after the first step's play: much too late to be told.
    """
    if not objective.kl_coefficient or objective.reference == "start":
        return
    directory = Path(objective.reference)
    if not (directory / "config.json").is_file() or not any(directory.glob("*.safetensors")):
        raise ModelError(
            f"objective.reference={objective.reference} is no model directory (config.json and "
            "safetensors weights): give one, or start"
        )


def _create(config: TrainConfig, progress: TrainProgress) -> RunDirectory:
    """Check all input, then make the run directory: bad input leaves nothing behind."""
    tiers = get_game(config.game).tiers
    if config.tier not in tiers:
        raise ConfigError(f"tier must be one of {', '.join(tiers)}, got {config.tier!r}")
    if config.policy.path:
        read_chat_pieces(Path(config.policy.path))
    boards = make_boards(config.game, config.tier, config.puzzles)
    if not config.puzzles.file and len(boards.train) < config.puzzles.num_train:
        progress.note(
            f"no more than {len(boards.train)} of {config.puzzles.num_train} training puzzles of "
            f"{config.game}:{config.tier} exist beside those held out; trained on all of them"
        )
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = config.run_dir or f"runs/{config.game}-{config.tier}-{now}"
    directory = RunDirectory.create(Path(name), config)
    directory.lock()
    write_boards(boards, directory.puzzles)
    return directory


def _reopen(config: TrainConfig, progress: TrainProgress) -> tuple[RunDirectory, ResumePoint]:
    if not config.run_dir:
        raise RunDirectoryError("--resume needs run_dir=PATH, the directory to go on with")
    directory, changed = RunDirectory.reopen(Path(config.run_dir), config)
    if changed:
        progress.note(f"resumed with other values, equal up to rounding: {', '.join(changed)}")
    if not (directory.puzzles / HELD_OUT).is_file():  # killed while they were made
        write_boards(make_boards(config.game, config.tier, config.puzzles), directory.puzzles)
    goes_on = directory.resume_point()
    if goes_on.step >= config.steps and directory.summarised_steps >= config.steps:
        raise RunDirectoryError(
            f"{directory.path} has done its {config.steps} steps already; give a larger steps= to "
            "train on"
        )
    return directory, goes_on
