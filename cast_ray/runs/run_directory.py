"""Where a run keeps its files, and the refusal to mix two runs."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.config.load import load_config, save_config
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import TrainConfig
from cast_ray.errors import RunDirectoryError, TrajectoryError
from cast_ray.files import lock_directory, refusals_named, written_aside
from cast_ray.rollout.trajectory import BATCH_SCHEMA, check_schema
from cast_ray.runs.directories import check_whole
from cast_ray.runs.remote_directories import PathOrUri

_CHECKPOINT = "step-{:05d}"
_GROUP = "step-{:05d}-group-{:05d}.parquet"
CHECKPOINT_NAMES = re.compile(r"\.?step-(?P<step>\d{5,})(\.partial|\.replaced)?")
"""With a dot in front while they are written (``cast_ray.runs.directories``)."""

CHANGEABLE_KEYS = frozenset(
    {
        *(f"resources.{item.name}" for item in fields(ResourcesConfig)),
        "learner.zero_stage",
        "learner.offload_optimizer",
        "learner.gradient_checkpointing",
        "learner.tokens_per_micro_batch",
        "learner.tokens_per_logit_chunk",
        "learner.num_threads",
        "learner.health_timeout_s",
        "learner.timeout_s",
        "learner.max_restarts",
        "driver_restarts",
        "rollout.timeout_s",
        "engine.start_timeout_s",
        "engine.request_timeout_s",
        "engine.update_timeout_s",
        "checkpoint_every",
        "checkpoints_kept",
    }
)
"""What a resumed run may do otherwise: these change no result by more than float rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a run goes on."""

    step: int = 0
    """Steps done."""
    checkpoint: PathOrUri | None = None
    """The state after them; None = the run's start."""
    damaged: tuple[str, ...] = ()
    """What is wrong with each newer checkpoint."""

    def __str__(self) -> str:
        """Return what the user is told."""
        if self.checkpoint is None:
            return "no checkpoint yet: the run begins at its start"
        return "; ".join([f"resumed after step {self.step} from {self.checkpoint}", *self.damaged])


class RunDirectory:
    """The layout of one run directory (DESIGN: command line)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.parquet"
        self.validation = path / "validation.parquet"
        self.events = path / "tensorboard"
        self.trajectories = path / "trajectories"
        self.groups = self.trajectories / "groups"
        self.evaluations = path / "evaluations"
        self.puzzles = path / "puzzles"
        self.checkpoints = path / "checkpoints"
        self.initial_model = path / "initial_model"
        self.start_model = path / "start_model"
        self.value_net = path / "value_net"
        self.model = path / "model"
        self.recoveries = path / "recoveries.jsonl"
        self.starts = path / "starts.txt"
        self.report = path / "report.html"
        self.summary = path / "summary.json"

    @property
    def address(self) -> str:
        """What the user knows the run by."""
        return str(self.path)

    def place(self, path: Path) -> PathOrUri:
        """Return where the weights of a path of this directory lie: there."""
        return path

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> RunDirectory:
        """Make a new run directory.

        Raises:
            RunDirectoryError: the directory holds something already.
            EnvironmentSetupError: it cannot be written.
        """
        if path.exists() and (not path.is_dir() or any(map(_is_kept, path.iterdir()))):
            raise RunDirectoryError(
                f"{path} is not empty; give another run_dir=PATH, or --resume to go on with it"
            )
        run = cls(path)
        with refusals_named(path):
            path.mkdir(parents=True, exist_ok=True)
        save_config(config, run.config)  # first: what has it can be gone on with
        run._make_folders()
        return run

    @classmethod
    def reopen(cls, path: Path, config: TrainConfig) -> tuple[RunDirectory, list[str]]:
        """Open the directory of an interrupted run.

        ``run_dir``, a larger ``steps`` and ``CHANGEABLE_KEYS`` may differ from the stored
        configuration.

        Returns:
            The directory, and the keys of ``CHANGEABLE_KEYS`` that differ, with both values.

        Raises:
            RunDirectoryError: no run is there, another process trains in it, or it has another
                configuration; the keys that differ are named.
        """
        run = cls.existing(path)
        run.lock()  # before anything is written there
        stored = load_config(run.config, [])
        differing = _differing_keys(asdict(stored), asdict(config))
        allowed = CHANGEABLE_KEYS | {"run_dir"}
        if config.steps > stored.steps:
            allowed |= {"steps"}
        refused = [text for key, text in differing.items() if key not in allowed]
        if refused:
            raise RunDirectoryError(
                f"{path} belongs to another configuration: {', '.join(refused)}; resume with "
                "the same values (steps may grow) or give another run_dir=PATH"
            )
        save_config(config, run.config)
        run._make_folders()
        return run, [text for key, text in differing.items() if key in CHANGEABLE_KEYS]

    @classmethod
    def existing(cls, path: Path) -> RunDirectory:
        """Return the run directory at ``path``.

        Raises:
            RunDirectoryError: there is none.
        """
        run = cls(path)
        if not run.config.is_file():
            raise RunDirectoryError(f"{path} is not a run directory: it has no config.yaml")
        return run

    def _make_folders(self) -> None:
        with refusals_named(self.path):
            for folder in (self.groups, self.evaluations, self.puzzles, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)

    def lock(self) -> None:
        """Keep every other process from training here until this one ends, however it does.

        Raises:
            RunDirectoryError: another process trains here.
        """
        self._lock = lock_directory(
            self.path,
            f"another process trains in {self.path}: wait for its end, or give another "
            "run_dir=PATH",
        )

    def note_start(self, run_id: str) -> list[str]:
        """Write down the id of a driver that begins here; return those before it, oldest first."""
        earlier = self.starts.read_text().split() if self.starts.is_file() else []
        with refusals_named(self.starts), open(self.starts, "a") as file:
            file.write(run_id + "\n")
        return earlier

    def write_trajectories(self, step: int, table: pa.Table) -> None:
        """Keep the trajectories that a step trains on; the files of its groups go."""
        write_table(self.trajectory_file(step), table)
        self._drop_groups(step)

    def _steps_with_groups(self) -> set[int]:
        return {int(path.name.split("-")[1]) for path in self.groups.glob("step-*.parquet")}

    def _drop_groups(self, step: int) -> None:
        for path in self.groups.glob(f"step-{step:05d}-group-*.parquet"):
            path.unlink()

    def group_file(self, step: int, group: int) -> Path:
        """Return the place of a finished group whose step is not trained on yet."""
        return self.groups / _GROUP.format(step, group)

    def read_trajectories(self, step: int) -> pa.Table:
        """Return the trajectories that a step trained on.

        Raises:
            TrajectoryError: the file cannot be read, or is of another version.
        """
        return read_table(self.trajectory_file(step), BATCH_SCHEMA)

    @property
    def last_logged_step(self) -> int:
        """The last step of which the trajectories are on disk, and those of all before it."""
        step = 0
        while self.trajectory_file(step + 1).is_file():
            step += 1
        return step

    def inspection(self, step: int) -> Path:
        """Return where the trajectories of a step that stopped the run are kept."""
        return self.path / "inspection" / f"step-{step:05d}.parquet"

    def set_aside(self, step: int) -> None:
        """Move a step's trajectories out of the log: a resumed run plays the step again."""
        place = self.inspection(step)
        with refusals_named(place):
            place.parent.mkdir(exist_ok=True)
            self.trajectory_file(step).replace(place)
        # What was played after it was played by weights that the step led to.
        for later in self._steps_with_groups():
            if later >= step:
                self._drop_groups(later)

    def trajectory_file(self, step: int) -> Path:
        """Return the place of one step's trajectories."""
        return self.trajectories / f"step-{step:05d}.parquet"

    def trajectory_files(self) -> list[Path]:
        """Return the steps' files in order."""
        return sorted(self.trajectories.glob("step-*.parquet"))

    def checkpoint(self, step: int) -> Path:
        """Return the place of one step's checkpoint."""
        return self.checkpoints / _CHECKPOINT.format(step)

    def resume_point(self) -> ResumePoint:
        """Return the newest checkpoint of which every byte is as it was written.

        Raises:
            RunDirectoryError: there are checkpoints, and all are damaged.
        """
        damaged = []
        for step, path in sorted(self._checkpoints().items(), reverse=True):
            try:
                check_whole(path)
            except RunDirectoryError as error:
                damaged.append(f"step {step}'s checkpoint is damaged: {error}")
            else:
                return ResumePoint(step=step, checkpoint=path, damaged=tuple(damaged))
        return no_checkpoint(str(self.path), damaged)

    def drop_old_checkpoints(self, step: int, *, kept: int) -> None:
        """Keep the newest ``kept`` checkpoints up to that of ``step``, which was just written.

        Everything else goes: older ones, those of later steps (damaged, and skipped by a resumed
        run), and what a killed process left half-written.
        """
        found = self._checkpoints()
        newest = sorted(number for number in found if number <= step)[-kept:]
        keep = {found[number] for number in newest}
        for path in self.checkpoints.iterdir():
            if CHECKPOINT_NAMES.fullmatch(path.name) and path not in keep:
                shutil.rmtree(path)

    def _checkpoints(self) -> dict[int, Path]:
        """Return all checkpoints by step; what is half-written has another kind of name."""
        found = {}
        for path in self.checkpoints.iterdir():
            match = CHECKPOINT_NAMES.fullmatch(path.name)
            if match and not path.name.startswith("."):
                found[int(match["step"])] = path
        return found

    def tidy_trajectories(self) -> None:
        """Remove what a killed process left half-written in the log, and set aside what follows a
        step that is not there: it was played after weights that nobody has any more."""
        for folder in (self.trajectories, self.groups):
            for path in folder.glob(".*.partial"):
                path.unlink()
        last = self.last_logged_step
        for step in self._steps_with_groups():
            if step <= last:  # killed between the step's file and the end of its groups'
                self._drop_groups(step)
        for path in self.trajectory_files():
            if (step := int(path.stem.removeprefix("step-"))) > last:
                self.set_aside(step)

    @property
    def summarised_steps(self) -> int:
        """Steps of the run that ``summary.json`` is of; 0 where there is none yet."""
        if not self.summary.is_file():
            return 0
        return int(json.loads(self.summary.read_text())["steps"])

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write ``summary.json``."""
        with written_aside(self.summary) as aside:
            aside.write_text(json.dumps(summary, indent=2) + "\n")


def _is_kept(path: Path) -> bool:
    """Whether a file is more than what a process that was killed at once leaves behind."""
    return path.name != ".lock" and not path.name.endswith(".partial")


def no_checkpoint(address: str, damaged: list[str]) -> ResumePoint:
    """Return the point where a run without checkpoints goes on.

    Raises:
        RunDirectoryError: it has some, all damaged.
    """
    if damaged:
        raise RunDirectoryError(
            f"{address} has no checkpoint that can be used: {'; '.join(damaged)}; start again "
            "with another run_dir=PATH"
        )
    return ResumePoint()


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file that is whole or absent, and on disk before it has its name."""
    with written_aside(path, durable=True) as aside:
        pq.write_table(table, aside, compression="zstd")


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Return a Parquet file that ``write_table`` wrote.

    Raises:
        TrajectoryError: it cannot be read, or its columns are not those of ``schema``.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TrajectoryError(f"{path} cannot be read ({error}): put it back") from error
    check_schema(table, schema)
    return table.combine_chunks()


def _differing_keys(
    stored: dict[str, Any], given: dict[str, Any], prefix: str = ""
) -> dict[str, str]:
    """Return the dotted keys whose values differ, and for each a text that names both."""
    differing = {}
    for name, value in given.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            differing |= _differing_keys(stored[name], value, f"{key}.")
        elif stored[name] != value:
            differing[key] = f"{key} ({stored[name]!r} there, {value!r} given)"
    return differing
