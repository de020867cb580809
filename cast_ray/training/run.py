"""Opens a training run: checks the input, creates or reopens the directory, reads the boards."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cast_ray.algorithms.advantages import get_transform
from cast_ray.config.load import load_config
from cast_ray.config.precision import precision_note
from cast_ray.config.pretrained import pretrained_note
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import HELD_OUT, Boards, make_boards, read_boards, write_boards
from cast_ray.envs.registry import tier_of
from cast_ray.errors import RunDirectoryError
from cast_ray.files import read_record, write_text
from cast_ray.functions import find_function
from cast_ray.rollout.chat_template import (
    ChatPieces,
    read_chat_pieces,
    store_chat_pieces,
    stored_chat_pieces,
)
from cast_ray.rollout.specs import with_model_limit
from cast_ray.runs.directories import new_run_dir
from cast_ray.runs.hub import with_commits
from cast_ray.runs.model_files import model_digest
from cast_ray.runs.object_store import check_reachable
from cast_ray.runs.remote_directories import localized, sound_model
from cast_ray.runs.remote_run import StoredRunDirectory
from cast_ray.runs.remote_session import REACH_S, RunAtUri, stored_config
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import ResumePoint, RunDirectory
from cast_ray.runs.tracking import check_trackers
from cast_ray.runs.uris import PathOrUri, Uri, path_or_uri
from cast_ray.training.value_net.oracle import check_oracle, keep_value_net
from serve.engine.vllm_args import check_vllm_options


def find_models(
    config: TrainConfig, *, stored: TrainConfig | None, progress: TrainProgress
) -> TrainConfig:
    """Return a run's configuration with its models by their commits; they are here and sound.

    Engines and learner would load them minutes later, the reference model after the first step.

    Args:
        config: of the run.
        stored: that of the run that is resumed.
        progress: is told what commit a name stands for.

    Raises:
        ModelError, StorageError: a model is missing or damaged, or cannot be downloaded.
    """
    with progress.paused():  # downloads have bars of their own
        found = with_commits(config, stored=stored)
        for key, name in found.models.items():
            is_here = "://" not in name
            sound_model(name, called=f"{key}={name}", with_weights=is_here, is_trained=True)
    for key, name in found.models.items():
        if name != config.models[key]:
            progress.note(f"{key}={name}")
    return found


def moved_models(
    directory: RunDirectory, config: TrainConfig, *, stored: TrainConfig | None = None
) -> set[str]:
    """Return the keys of models that lie elsewhere than when the run was started.

    Their digests are noted when the run is new; of models in a store they are not known.

    Args:
        directory: of the run.
        config: of the run.
        stored: that of the run that is resumed.

    Raises:
        RunDirectoryError: one is another model.
    """
    before = config.models if stored is None else stored.models
    if before == config.models:
        here = {key: name for key, name in before.items() if "://" not in name}
        if here and not directory.models.is_file():
            digests = {key: model_digest(localized(name)) for key, name in here.items()}
            write_text(directory.models, json.dumps(digests, indent=1) + "\n")
        return set()
    is_noted = directory.models.is_file()
    noted = read_record(directory.models, dict[str, str]) if is_noted else {}
    moved = {key for key in noted if config.models.get(key) not in (None, before.get(key))}
    for key in moved:
        if model_digest(localized(config.models[key])) != noted[key]:
            raise RunDirectoryError(
                f"{key}={config.models[key]} has other weights or another tokenizer than "
                f"{before.get(key)}, with which {directory.address} was started: give that model, "
                "or another run_dir=PATH"
            )
    return moved


@dataclass(slots=True)
class Run:
    """What every phase of the job needs."""

    config: TrainConfig
    """With ``engine.max_model_len`` as a number if ``policy.path`` names a model."""
    directory: RunDirectory
    progress: TrainProgress
    boards: Boards
    run_id: str
    goes_on: ResumePoint | None = None
    """Where a resumed run continues; None = a new run."""
    lost_at: float | None = None
    """When the driver that this one replaces was lost, as ``time.time``; None = none was."""
    earlier_ids: list[str] = field(default_factory=list)
    """``run_id`` of the drivers that trained here before; their remains belong to this run."""
    at_uri: RunAtUri | None = None
    """The way to the URI that the run is at; None = it is at a local path, written at once."""
    on_exit: ExitStack = field(default_factory=ExitStack)
    """A block that holds the run; whatever ends it, what is left is sent to the URI."""

    def chat_pieces(self, model_dir: PathOrUri) -> ChatPieces:
        """Return the pieces that the run keeps; on first use they are cut for the model.

        Raises:
            ModelError: its chat template is missing, broken or not append-only.
        """
        pieces = stored_chat_pieces(self.directory.path)
        if pieces is None:
            here = localized(model_dir, with_weights=False)
            pieces = read_chat_pieces(here, self.config.policy.chat_template)
            store_chat_pieces(pieces, self.directory.path)
            self.send()  # before the first group, which is sent at once
        return pieces

    def send(self) -> None:
        """Have the files that are written sent to the run's URI, if it has one; do not wait.

        Raises:
            StorageError: the URI was away for too long.
        """
        if self.at_uri and self.at_uri.publisher:
            self.at_uri.publisher.send()

    def send_all(self) -> None:
        """Return when all files that are written are where the run is.

        Raises:
            StorageError: the URI was away for too long.
        """
        if self.at_uri and self.at_uri.publisher:
            self.at_uri.publisher.send_all()


def open_run(
    config: TrainConfig,
    *,
    resume: bool,
    progress: TrainProgress,
    lost_at: float | None = None,
) -> Run:
    """Create a run, or reopen an interrupted one, and hold it.

    Raises:
        CastRayError: the input is wrong; nothing was written.
    """
    if resume and not config.run_dir:
        raise RunDirectoryError("--resume needs run_dir=PATH, the directory to resume")
    location = path_or_uri(config.run_dir or new_run_dir(config.title))
    if isinstance(location, Uri):
        check_reachable(location, timeout_s=REACH_S)
    check_trackers(config.tracking)
    check_vllm_options(config.engine.vllm)
    get_transform(config.advantage.transform)  # refuses an unknown name
    for key, name in config.functions.items():
        find_function(key, name, {"objective.loss": 3, "game": 0}.get(key, 1))
    before = stored_config(location) if resume else None
    stored = load_config(before, [], is_stored=True) if before else None
    config = find_models(config, stored=stored, progress=progress)
    goes_on = None
    with ExitStack() as held:
        if resume:
            directory, at_uri, goes_on = _reopen(location, config, stored, progress, held)
        else:
            directory, at_uri = _create(location, config, progress, held)
        # Different for every start, because a killed driver may have left named actors behind.
        run_id = f"{directory.plain_name}-{datetime.now(UTC).strftime('%H%M%S%f')}"
        earlier = directory.note_start(run_id)
        boards = read_boards(directory.puzzles)
        keep_value_net(config, directory.value_net)
        if config.policy.path:
            config = with_model_limit(config, localized(config.policy.path, with_weights=False))
        if at_uri:
            at_uri.begin_sending()
        return Run(
            config,
            directory,
            progress,
            boards,
            run_id,
            goes_on,
            lost_at,
            earlier,
            at_uri,
            held.pop_all(),
        )


def _at(
    location: PathOrUri, held: ExitStack, *, resume: bool
) -> tuple[type[RunDirectory], Path, RunAtUri | None]:
    """Return the kind of a run directory and its local path; claim it if it is at a URI."""
    if isinstance(location, Path):
        return RunDirectory, location, None
    at_uri = RunAtUri(location, resume=resume)
    held.push(lambda _kind, failure, _trace: at_uri.close(failure=failure))
    return StoredRunDirectory, at_uri.path, at_uri


def _create(
    location: PathOrUri, config: TrainConfig, progress: TrainProgress, held: ExitStack
) -> tuple[RunDirectory, RunAtUri | None]:
    """Check all input, then create the run directory: wrong input leaves no directory."""
    tier_of(config.game, config.tier)  # or its error
    if config.policy.path:
        model_dir = localized(config.policy.path, with_weights=False)
        read_chat_pieces(model_dir, config.policy.chat_template)
    check_oracle(config)
    if note := pretrained_note(config):
        progress.note(note)
    if note := precision_note(config):
        progress.note(note)
    progress.phase("choosing puzzles")
    boards = make_boards(config.game, config.tier, config.puzzles)
    if not config.puzzles.file and len(boards.train) < config.puzzles.num_train:
        progress.note(
            f"only {len(boards.train)} of {config.puzzles.num_train} training puzzles of "
            f"{config.game}:{config.tier} exist besides the held-out ones; training on all of them"
        )
    kind, path, at_uri = _at(location, held, resume=False)
    kind(path).check_empty()  # or the lock would be left in a folder of something else
    held.enter_context(kind(path).locked())  # first: who comes second leaves no trace
    directory = kind.create(path, config)
    write_boards(boards, directory.puzzles)
    moved_models(directory, config)
    return directory, at_uri


def _reopen(
    location: PathOrUri,
    config: TrainConfig,
    stored: TrainConfig | None,
    progress: TrainProgress,
    held: ExitStack,
) -> tuple[RunDirectory, RunAtUri | None, ResumePoint]:
    kind, path, at_uri = _at(location, held, resume=True)
    directory = kind.existing(path)
    held.enter_context(directory.locked())  # before anything is written there
    assert stored is not None  # ``existing`` has found it
    moved = moved_models(directory, config, stored=stored)
    if changed := directory.reopen(config, moved=moved):
        progress.note(f"resumed with other values, equal up to rounding: {', '.join(changed)}")
    if not (directory.puzzles / HELD_OUT).is_file():  # killed while they were written
        write_boards(make_boards(config.game, config.tier, config.puzzles), directory.puzzles)
    goes_on = directory.resume_point()
    if goes_on.step >= config.steps and directory.has_finished(config.steps):
        raise RunDirectoryError(
            f"{directory.address} has already done its {config.steps} steps; give a larger steps= "
            "to continue training"
        )
    return directory, at_uri, goes_on
