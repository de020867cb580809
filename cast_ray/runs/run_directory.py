"""Where a run keeps its files; two runs are never mixed in one directory."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from cast_ray.config.load import load_config, save_config
from cast_ray.config.reference import differing_values
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import TrainConfig
from cast_ray.errors import RunDirectoryError
from cast_ray.files import append_line, locked, refusals_named, write_text
from cast_ray.parquet import read_table, write_table
from cast_ray.rollout.trajectory import BATCH_SCHEMA, check_schema
from cast_ray.runs.directories import OUTCOME_ALONE, check_whole
from cast_ray.runs.processes import ended_starts, start_line
from cast_ray.runs.summary import read_summary
from cast_ray.runs.uris import PathOrUri

_CHECKPOINT = "step-{:05d}"
_GROUP = "step-{:05d}-group-{:05d}.parquet"
CHECKPOINT_NAMES = re.compile(r"\.?step-(?P<step>\d{5,})(\.partial|\.replaced)?")
"""With a leading dot while they are being written (``cast_ray.runs.directories``)."""

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
        "tracking",
    }
)
"""Keys that a resumed run may change: they change results by no more than float rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a run resumes."""

    step: int = 0
    """Completed steps."""
    checkpoint: PathOrUri | None = None
    """The state after them; None = the run's start."""
    damaged: tuple[str, ...] = ()
    """Why each newer checkpoint cannot be used."""

    def __str__(self) -> str:
        """Return a message for the user."""
        if self.checkpoint is None:
            return "no checkpoint yet: the run starts from the beginning"
        return "; ".join([f"resumed after step {self.step} from {self.checkpoint}", *self.damaged])


class RunDirectory:
    """The layout of one run directory."""

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
        self.warm_start = self.checkpoints / "warm_start"
        """The learner's state within the warm start."""
        self.start_model = path / "start_model"
        self.value_net = path / "value_net"
        self.models = path / "models.json"
        self.model = path / "model"
        self.recoveries = path / "recoveries.jsonl"
        self.starts = path / "starts.txt"
        self.report = path / "report.html"
        self.summary = path / "summary.json"
        self.outcome_alone = Path(f"{path}{OUTCOME_ALONE}")
        """The run of ``cast-ray train --outcome-alone``."""

    @property
    def address(self) -> PathOrUri:
        """Where the user finds the run."""
        return self.path

    @property
    def plain_name(self) -> str:
        """The folder's name in letters that Serve's names and Ray's metrics may have."""
        return re.sub(r"[^\w.-]", "-", self.path.name, flags=re.ASCII)

    def location(self, path: Path) -> PathOrUri:
        """Return where weights with a path below this directory lie."""
        return path

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> RunDirectory:
        """Make a new run directory, which the caller has locked.

        Raises:
            RunDirectoryError: the directory is not empty.
            EnvironmentSetupError: it cannot be written.
        """
        run = cls(path)
        run.check_empty()
        with refusals_named(path):
            path.mkdir(parents=True, exist_ok=True)
        save_config(config, run.config)  # first: a directory that has it can be resumed
        run.make_folders()
        return run

    def check_empty(self) -> None:
        """Raise RunDirectoryError unless a new run can be made here."""
        path = self.path
        if path.exists() and (not path.is_dir() or any(map(_is_kept, path.iterdir()))):
            raise RunDirectoryError(
                f"{path} is not empty; give another run_dir=PATH, or --resume to continue it"
            )

    def reopen(self, config: TrainConfig, *, moved: Collection[str] = ()) -> list[str]:
        """Store the configuration of a resumed run; return what of ``CHANGEABLE_KEYS`` differs.

        Raises:
            RunDirectoryError: as for ``compare_config``.
        """
        differing = self.compare_config(config, moved=moved)
        save_config(config, self.config)
        self.make_folders()
        return [text for key, text in differing.items() if key in CHANGEABLE_KEYS]

    def compare_config(self, config: TrainConfig, *, moved: Collection[str] = ()) -> dict[str, str]:
        """Return by key the values, stored and new, in which a resumed run's configuration differs.

        ``run_dir``, a larger ``steps``, ``CHANGEABLE_KEYS`` and the models in ``moved``, which are
        the same at another place, may differ.

        Raises:
            RunDirectoryError: others do, too; the message lists the keys.
        """
        stored = load_config(self.config, [], is_stored=True)
        differing = differing_values(stored, config)
        allowed = CHANGEABLE_KEYS | {"run_dir", *moved}
        if config.steps > stored.steps:
            allowed |= {"steps"}
        refused = [text for key, text in differing.items() if key not in allowed]
        if refused:
            raise RunDirectoryError(
                f"{self.path} belongs to another configuration: {', '.join(refused)}; resume with "
                "the same values (steps may grow) or give another run_dir=PATH"
            )
        return differing

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

    def make_folders(self) -> None:
        """Make all folders that readers expect."""
        with refusals_named(self.path):
            for folder in (self.groups, self.evaluations, self.puzzles, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)

    def locked(self) -> AbstractContextManager[None]:
        """Return a context that keeps other processes from training here.

        Raises:
            RunDirectoryError: another process trains here.
        """
        return locked(
            self.path / ".lock",
            f"another process trains in {self.path}: wait until it ends, or give another "
            "run_dir=PATH",
        )

    def note_start(self, run_id: str) -> list[str]:
        """Record the id of a driver that starts here; return earlier ones that have ended."""
        address = str(self.address)
        earlier = self.starts.read_text(errors="replace") if self.starts.is_file() else ""
        append_line(self.starts, start_line(run_id, address))
        return ended_starts(earlier, address)

    def write_trajectories(self, step: int, table: pa.Table) -> None:
        """Store the trajectories that a step trains on, and delete the files of its groups."""
        write_table(self.trajectory_file(step), table)
        self._drop_groups(step)

    def _steps_with_groups(self) -> set[int]:
        return {int(path.name.split("-")[1]) for path in self.groups.glob("step-*.parquet")}

    def _drop_groups(self, step: int) -> None:
        for path in self.groups.glob(f"step-{step:05d}-group-*.parquet"):
            path.unlink()

    def group_file(self, step: int, group: int) -> Path:
        """Return the file of a finished group whose step has not been trained on yet."""
        return self.groups / _GROUP.format(step, group)

    def evaluation_group(self, name: str, step: int, group: int) -> Path:
        """Return the file of a finished group of an evaluation that is not whole yet.

        Args:
            name: ``validation``, or of the evaluation.
            step: after which it is played: other weights play other games.
            group: its number.
        """
        return self.groups / f"evaluation-{name}-after-{_GROUP.format(step, group)}"

    def drop_evaluation_groups(self, name: str) -> None:
        """Delete the groups of an evaluation that is stored, and of earlier ones of its name."""
        for path in self.groups.glob(f"evaluation-{name}-after-*.parquet"):
            path.unlink()

    def read_trajectories(self, step: int) -> pa.Table:
        """Return the trajectories that a step trained on.

        Raises:
            DamagedFileError, TrajectoryError: as for ``read_batch``.
        """
        return read_batch(self.trajectory_file(step), BATCH_SCHEMA)

    @property
    def last_logged_step(self) -> int:
        """The last step whose trajectories, and those of all earlier steps, are on disk."""
        step = 0
        while self.trajectory_file(step + 1).is_file():
            step += 1
        return step

    def inspection(self, step: int) -> Path:
        """Return the file for the trajectories of a step that stopped the run."""
        return self.path / "inspection" / f"step-{step:05d}.parquet"

    def set_aside(self, step: int) -> None:
        """Move a step's trajectories out of the log: a resumed run replays the step."""
        target = self.inspection(step)
        with refusals_named(target):
            target.parent.mkdir(exist_ok=True)
            self.trajectory_file(step).replace(target)
        # Later groups were played with weights that this step produced.
        for later in self._steps_with_groups():
            if later >= step:
                self._drop_groups(later)

    def trajectory_file(self, step: int) -> Path:
        """Return the file of one step's trajectories."""
        return self.trajectories / f"step-{step:05d}.parquet"

    def trajectory_files(self) -> list[Path]:
        """Return the files of all steps in order."""
        return sorted(self.trajectories.glob("step-*.parquet"))

    def checkpoint(self, step: int) -> Path:
        """Return the directory of one step's checkpoint."""
        return self.checkpoints / _CHECKPOINT.format(step)

    def config_until(self, step: int) -> Path:
        """Return the file of the configuration that the steps up to this one were made with."""
        return self.path / f"config-until-{_CHECKPOINT.format(step)}.yaml"

    def earlier_configs(self) -> dict[int, TrainConfig]:
        """Return the configurations before ``config.yaml`` by their last steps, in order.

        A run has them if it began from a checkpoint of a run with other values.
        """
        files = sorted(self.path.glob("config-until-step-*.yaml"))
        return {
            int(file.stem.rpartition("-")[2]): load_config(file, [], is_stored=True)
            for file in files
        }

    def resume_point(self) -> ResumePoint:
        """Return the newest undamaged checkpoint; the start of a run that has none yet.

        Raises:
            RunDirectoryError: there are checkpoints, and all are damaged.
        """
        damaged = []
        for step, checkpoint in sorted(self._checkpoints().items(), reverse=True):
            try:
                self._check_whole(checkpoint)
            except RunDirectoryError as error:
                damaged.append(f"step {step}'s checkpoint is damaged: {error}")
            else:
                return ResumePoint(step=step, checkpoint=checkpoint, damaged=tuple(damaged))
        if damaged:
            raise RunDirectoryError(
                f"{self.address} has no checkpoint that can be used: {'; '.join(damaged)}; start "
                "again with another run_dir=PATH"
            )
        return ResumePoint()

    def drop_old_checkpoints(self, step: int, *, kept: int) -> None:
        """Keep the newest ``kept`` checkpoints up to that of ``step``, which was just written.

        All others are deleted: older ones, later ones (a resumed run skipped them as damaged), and
        what a killed process left half-written.
        """
        found = self._checkpoints()
        newest = sorted(number for number in found if number <= step)[-kept:]
        keep = {found[number] for number in newest}
        for path in self.checkpoints.iterdir():
            if CHECKPOINT_NAMES.fullmatch(path.name) and path not in keep:
                shutil.rmtree(path)

    def _checkpoints(self) -> dict[int, PathOrUri]:
        """Return all checkpoints by step; half-written ones have names with a dot in front."""
        names = {path: CHECKPOINT_NAMES.fullmatch(path.name) for path in self.checkpoints.iterdir()}
        return {
            int(match["step"]): path
            for path, match in names.items()
            if match and not path.name.startswith(".")
        }

    def _check_whole(self, checkpoint: PathOrUri) -> None:
        """Raise RunDirectoryError unless every byte of a checkpoint is as it was written."""
        check_whole(Path(checkpoint))

    def tidy_trajectories(self) -> None:
        """Delete what a killed process left half-written in the log.

        Steps after a missing step are set aside: the weights that played them are lost.
        """
        for folder in (self.trajectories, self.groups):
            for path in folder.glob(".*.partial"):
                path.unlink()
        last = self.last_logged_step
        for step in self._steps_with_groups():
            if step <= last:  # killed before it deleted the groups of a written step
                self._drop_groups(step)
        for path in self.trajectory_files():
            if (step := int(path.stem.removeprefix("step-"))) > last:
                self.set_aside(step)

    def has_finished(self, steps: int) -> bool:
        """Return whether its ``summary.json`` is of this many steps or more."""
        return int(self.read_summary().get("steps", -1)) >= steps

    def read_summary(self) -> dict[str, Any]:
        """Return ``summary.json`` (Any: a JSON object); empty if there is none yet.

        Raises:
            DamagedFileError: it is broken.
        """
        return read_summary(self.summary) if self.summary.is_file() else {}

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write ``summary.json``."""
        write_text(self.summary, json.dumps(summary, indent=2) + "\n")


def _is_kept(path: Path) -> bool:
    """Whether a file is more than what a process leaves that was killed at its start."""
    return path.name != ".lock" and not path.name.endswith(".partial")


def read_batch(path: Path, schema: pa.Schema) -> pa.Table:
    """Return the trajectories in a file.

    Raises:
        DamagedFileError: it cannot be read, or has changed since it was written.
        TrajectoryError: its columns are not those of ``schema``.
    """
    table = read_table(path)
    check_schema(table, schema, name=path)
    return table
