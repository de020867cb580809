"""A training run as a job of Ray: its command, its environment, and what is wrong with either.

Pure: ``job_server`` sends it, ``job_following`` watches it.

The files that travel with a job: what its run needs, gathered in a folder of its own.

Nodes have cast_ray in their environment, so that a configuration file is enough; the code of this
checkout goes along on demand. Gathered, not filtered: what nobody named cannot slip in.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cast_ray.cluster.code_version import PACKAGES, code_version, package_dir
from cast_ray.cluster.inside_job import SUBMITTED_BY, require_run_dir
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError, EnvironmentSetupError
from cast_ray.files import refusals_named
from cast_ray.runs.uris import path_or_uri

_MADE_ANEW = ("__pycache__", "*.pyc", "*.nbi", "*.nbc")
"""Caches: numba's and Python's are bound to a path and a machine."""
_MOST_BYTES = 50 * 2**20
"""Ray refuses 100 MiB; our packages have 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPackage:
    """A folder that becomes the job's working directory."""

    folder: Path
    num_files: int
    num_bytes: int

    def __str__(self) -> str:
        """Return how much travels, in words."""
        if not self.num_files:
            return "nothing but the command"
        files = "1 file" if self.num_files == 1 else f"{self.num_files} files"
        return f"{files}, {-(-self.num_bytes // 1024)} KiB"


def pack_job(folder: Path, *, config_file: Path | None, with_code: bool) -> JobPackage:
    """Gather in an empty folder what travels with a job.

    Args:
        folder: empty.
        config_file: goes to ``sent_config``, wherever it lies here.
        with_code: the packages too, as this process would import them.

    Raises:
        EnvironmentSetupError: too much for one upload, or the disk refuses.
    """
    with refusals_named(folder):
        if config_file is not None:
            target = folder / sent_config(config_file)
            target.parent.mkdir()
            shutil.copyfile(config_file, target)
        for package in PACKAGES if with_code else ():
            copy_package(package_dir(package), folder / package)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > _MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise EnvironmentSetupError(
            f"{total / 2**20:.0f} MiB would travel with the job, {_MOST_BYTES / 2**20:.0f} at "
            f"most: move {largest.relative_to(folder)} ({sizes[largest] / 2**20:.0f} MiB) out of "
            "the way"
        )
    return JobPackage(folder=folder, num_files=len(sizes), num_bytes=total)


def copy_package(place: Path, target: Path) -> None:
    """Copy a package without what each machine makes anew for itself."""
    shutil.copytree(place, target, ignore=shutil.ignore_patterns(*_MADE_ANEW))


def sent_config(config_file: Path) -> Path:
    """Return where in the job's working directory a configuration file lies."""
    return Path("configs") / config_file.name


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a cluster is asked to run."""

    name: str
    """Ray's submission id."""
    command: str
    """For the shell of the head node."""
    env_vars: dict[str, str]
    """Of the command and of every process of the job, on all nodes."""
    metadata: dict[str, str]
    """Shown by Ray beside the job."""


def train_job(
    config: TrainConfig,
    *,
    name: str,
    overrides: Sequence[str],
    config_file: Path | None,
    resume: bool,
) -> JobRequest:
    """Return the job that is ``cast-ray train`` with these arguments.

    Args:
        config: what file and overrides come to here.
        name: of the job.
        overrides: ``key=value``, as given.
        config_file: travels with the job.
        resume: whether ``config.run_dir`` is gone on with.

    Raises:
        ConfigError: a name or a path that makes no sense on the cluster.
    """
    require_job_name(name)
    require_run_dir(config.run_dir)
    _require_cluster_paths(config)
    arguments = [] if config_file is None else ["--config", sent_config(config_file).as_posix()]
    arguments += ["--resume"] if resume else []
    # Without exec, a shell may stand between Ray's stop and the run.
    command = "exec " + shlex.join(["cast-ray", "train", *arguments, *overrides])
    version = code_version()
    env_vars = {
        "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token"),
        # Ray's own 3 s would end most runs in the middle of their step.
        "RAY_JOB_STOP_WAIT_TIME_S": str(stop_wait_s(config)),
        SUBMITTED_BY: version,
        # Not NUMBA_CACHE_DIR: the driver names it (ray_session), and Ray refuses a variable that
        # job and driver both set.
    }
    metadata = {"cast_ray": version, "run_dir": config.run_dir}
    return JobRequest(name=name, command=command, env_vars=env_vars, metadata=metadata)


def default_name(config: TrainConfig, now: datetime) -> str:
    """Return the name of a job that was given none."""
    return f"{config.game}-{config.tier}-{now.strftime('%Y%m%d-%H%M%S')}"


def require_job_name(name: str) -> None:
    """Raise ConfigError unless Ray can keep a job, and its log file, under a name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"a job's name has up to 100 letters, digits, '.', '_' and '-', got {name!r}"
        )


def stop_wait_s(config: TrainConfig) -> int:
    """Return how many seconds a stopped run may take to finish its step and keep it.

    No step that is still alive takes longer by its own time-outs; a hung one is ended then.
    """
    updates = config.learner.timeout_s + config.engine.update_timeout_s
    return math.ceil(config.rollout.timeout_s + updates)


def _require_cluster_paths(config: TrainConfig) -> None:
    reference = config.objective.reference
    paths = {
        "puzzles.file": config.puzzles.file,
        "policy.path": config.policy.path,
        "objective.reference": "" if reference in ("start", "none") else reference,
    }
    for key, path in paths.items():
        if path and not path_or_uri(path).is_absolute():
            raise ConfigError(
                f"{key} must be an absolute path on the cluster, where no file of this machine "
                f"is, or a URI: got {path!r}"
            )
