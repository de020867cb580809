"""A training run before its parts start: input checked, directory made or reopened, boards read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cast_ray.algorithms.advantages import get_transform
from cast_ray.config.learning import ObjectiveConfig
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import HELD_OUT, Boards, make_boards, read_boards, write_boards
from cast_ray.errors import ConfigError, ModelError, RunDirectoryError
from cast_ray.games import get_game
from cast_ray.learner.small_policy import read_chat_pieces
from cast_ray.runs.object_store import check_reachable, list_files
from cast_ray.runs.remote_directories import localized
from cast_ray.runs.remote_run import StoredRunDirectory
from cast_ray.runs.remote_session import REACH_S, RunAtUri
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import ResumePoint, RunDirectory
from cast_ray.runs.uris import is_uri
from cast_ray.training.value_net.oracle import check_value_net, keep_value_net


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
    at_uri: RunAtUri | None = None
    """The way to the URI that the run is at; None = it is at a local path, written at once."""

    def send(self) -> None:
        """Have the files that are written sent to the run's URI, if it has one; do not wait.

        Raises:
            StorageError: the URI was away for too long.
        """
        if self.at_uri:
            self.at_uri.send()

    def send_all(self) -> None:
        """Return when all files that are written are where the run is.

        Raises:
            StorageError: the URI was away for too long.
        """
        if self.at_uri:
            self.at_uri.send_all()

    @contextmanager
    def publish_on_exit(self) -> Iterator[None]:
        """Send what is left after the block, whatever ends it, and give the run up."""
        try:
            yield
        except BaseException as failure:
            self._close(failure)
            raise
        self._close(None)

    def _close(self, failure: BaseException | None) -> None:
        if self.at_uri:
            self.at_uri.close(failure=failure)


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
    if is_uri(config.run_dir):
        check_reachable(config.run_dir, timeout_s=REACH_S)
    get_transform(config.advantage.transform)  # refuses an unknown name
    _check_reference(config.objective)
    with ExitStack() as on_failure:
        if resume:
            directory, at_uri, goes_on = _reopen(config, progress, on_failure)
        else:
            directory, at_uri = _create(config, progress, on_failure)
            goes_on = None
        # Different for every start: a run that was killed may have left actors of its name behind.
        run_id = f"{directory.path.name}-{datetime.now(UTC).strftime('%H%M%S%f')}"
        earlier = directory.note_start(run_id)
        boards = read_boards(directory.puzzles)
        keep_value_net(config, directory.value_net)
        if at_uri:
            at_uri.begin_sending()
        on_failure.pop_all()
    return Run(config, directory, progress, boards, run_id, goes_on, lost_at, earlier, at_uri)


def _check_reference(objective: ObjectiveConfig) -> None:
    """Raise ModelError if the reference model that the objective needs is not where it should be.

    The learner loads it after the first step's play: much too late to be told.
    """
    if not objective.kl_coefficient or objective.reference == "start":
        return
    if is_uri(objective.reference):
        names = [file.name for file in list_files(objective.reference)]
    else:
        names = [path.name for path in Path(objective.reference).glob("*")]
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"objective.reference={objective.reference} is no model directory (config.json and "
            "safetensors weights): give one, or start"
        )


def _at(
    run_dir: str, on_failure: ExitStack, *, resume: bool
) -> tuple[type[RunDirectory], Path, RunAtUri | None]:
    """Return the kind of a run directory and its local path; claim it if it is at a URI."""
    if not is_uri(run_dir):
        return RunDirectory, Path(run_dir), None
    at_uri = RunAtUri(run_dir, resume=resume)
    on_failure.push(lambda _kind, failure, _trace: at_uri.close(failure=failure))
    return StoredRunDirectory, at_uri.path, at_uri


def _create(
    config: TrainConfig, progress: TrainProgress, on_failure: ExitStack
) -> tuple[RunDirectory, RunAtUri | None]:
    """Check all input, then make the run directory: bad input leaves nothing behind."""
    tiers = get_game(config.game).tiers
    if config.tier not in tiers:
        raise ConfigError(f"tier must be one of {', '.join(tiers)}, got {config.tier!r}")
    if config.policy.path:
        read_chat_pieces(localized(config.policy.path, with_weights=False))
    check_value_net(config)
    boards = make_boards(config.game, config.tier, config.puzzles)
    if not config.puzzles.file and len(boards.train) < config.puzzles.num_train:
        progress.note(
            f"no more than {len(boards.train)} of {config.puzzles.num_train} training puzzles of "
            f"{config.game}:{config.tier} exist beside those held out; trained on all of them"
        )
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = config.run_dir or f"runs/{config.game}-{config.tier}-{now}"
    kind, path, at_uri = _at(name, on_failure, resume=False)
    directory = kind.create(path, config)
    directory.lock()
    write_boards(boards, directory.puzzles)
    return directory, at_uri


def _reopen(
    config: TrainConfig, progress: TrainProgress, on_failure: ExitStack
) -> tuple[RunDirectory, RunAtUri | None, ResumePoint]:
    if not config.run_dir:
        raise RunDirectoryError("--resume needs run_dir=PATH, the directory to go on with")
    kind, path, at_uri = _at(config.run_dir, on_failure, resume=True)
    directory, changed = kind.reopen(path, config)
    if changed:
        progress.note(f"resumed with other values, equal up to rounding: {', '.join(changed)}")
    if not (directory.puzzles / HELD_OUT).is_file():  # killed while they were made
        write_boards(make_boards(config.game, config.tier, config.puzzles), directory.puzzles)
    goes_on = directory.resume_point()
    if goes_on.step >= config.steps and directory.summarised_steps >= config.steps:
        raise RunDirectoryError(
            f"{directory.address} has done its {config.steps} steps already; give a larger "
            "steps= to train on"
        )
    return directory, at_uri, goes_on
