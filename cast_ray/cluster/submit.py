"""A training run as a job of Ray: its command, its environment and the files it uploads.

``jobs_api`` sends it, ``job_log`` follows it. Nodes have cast_ray installed, so a configuration
file is enough; the code of this checkout is added on request. Files are copied into a folder of
their own, so that nothing else can be uploaded by accident.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cast_ray.cluster.code_version import PACKAGES, code_version, package_dir
from cast_ray.cluster.inside_job import SUBMITTED_BY, require_run_dir
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError, EnvironmentSetupError
from cast_ray.files import refusals_named
from cast_ray.functions import file_of, sent_name
from cast_ray.runs.uris import hub_name, path_or_uri

_CACHES = ("__pycache__", "*.pyc", "*.nbi", "*.nbc")
"""Of Python and numba; they are bound to a path and a machine."""
_MOST_BYTES = 50 * 2**20
"""Ray refuses 100 MiB; our packages take 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPackage:
    """A folder that becomes the job's working directory."""

    folder: Path
    num_files: int
    num_bytes: int

    def __str__(self) -> str:
        """Return the size as text."""
        if not self.num_files:
            return "nothing but the command"
        files = "1 file" if self.num_files == 1 else f"{self.num_files} files"
        return f"{files}, {-(-self.num_bytes // 1024)} KiB"


def pack_job(
    folder: Path, *, config_file: Path | None, functions: Sequence[str] = (), with_code: bool
) -> JobPackage:
    """Copy what a job uploads into a folder.

    Args:
        folder: empty.
        config_file: is copied to ``sent_config``.
        functions: pinned names of the user's functions, whose files are copied.
        with_code: also copy the packages, as this process would import them.

    Raises:
        EnvironmentSetupError: it is too large for one upload, or the disk is full.
    """
    with refusals_named(folder):
        if config_file is not None:
            target = folder / sent_config(config_file)
            target.parent.mkdir()
            shutil.copyfile(config_file, target)
        for name in functions:
            if (file := file_of(name)) and file.is_file():
                target = folder / sent_name(name).rpartition(":")[0]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
        for package in PACKAGES if with_code else ():
            copy_package(package_dir(package), folder / package)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > _MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise EnvironmentSetupError(
            f"the job would upload {total / 2**20:.0f} MiB, at most {_MOST_BYTES / 2**20:.0f} are "
            f"allowed: move {largest.relative_to(folder)} ({sizes[largest] / 2**20:.0f} MiB) out "
            "of the package"
        )
    return JobPackage(folder=folder, num_files=len(sizes), num_bytes=total)


def copy_package(package: Path, target: Path) -> None:
    """Copy a package without caches."""
    shutil.copytree(package, target, ignore=shutil.ignore_patterns(*_CACHES))


def sent_config(config_file: Path) -> Path:
    """Return the path of a configuration file in the job's working directory."""
    return Path("configs") / config_file.name


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a cluster is to run."""

    name: str
    """Ray's submission id."""
    command: str
    """For the shell of the head node."""
    env_vars: dict[str, str]
    """For the command and every process of the job, on all nodes."""
    metadata: dict[str, str]
    """Shown by Ray with the job."""
    functions: tuple[str, ...] = ()
    """Pinned names of the user's functions, whose files are uploaded."""


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
        config: the result of file and overrides.
        name: of the job.
        overrides: ``key=value``, as given.
        config_file: is uploaded with the job.
        resume: whether to resume ``config.run_dir``.

    Raises:
        ConfigError: a name or a path makes no sense on the cluster.
    """
    require_job_name(name)
    require_run_dir(config.run_dir)
    _require_cluster_paths(config)
    arguments = [] if config_file is None else ["--config", sent_config(config_file).as_posix()]
    arguments += ["--resume"] if resume else []
    # Without exec a shell would receive Ray's stop signal in place of the run.
    sent = [f"{key}={sent_name(name)}" for key, name in config.functions.items() if file_of(name)]
    command = "exec " + shlex.join(["cast-ray", "train", *arguments, *overrides, *sent])
    version = code_version()
    env_vars = {
        "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token"),
        # Ray's default of 3 s would end most runs in the middle of a step.
        "RAY_JOB_STOP_WAIT_TIME_S": str(stop_wait_s(config)),
        SUBMITTED_BY: version,
        # Not NUMBA_CACHE_DIR: the driver sets it (ray_session), and Ray refuses a variable that
        # both job and driver set.
    }
    metadata = {"cast_ray": version, "run_dir": config.run_dir}
    return JobRequest(
        name=name,
        command=command,
        env_vars=env_vars,
        metadata=metadata,
        functions=tuple(config.functions.values()),
    )


def require_job_name(name: str) -> None:
    """Raise ConfigError unless Ray can use a name for a job and its log file."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"a job's name consists of up to 100 letters, digits, '.', '_' and '-', got {name!r}"
        )


def stop_wait_s(config: TrainConfig) -> int:
    """Return how many seconds a stopped run gets to finish and store its step.

    Its own time-outs allow no step to take longer; a hung one is killed then.
    """
    updates = config.learner.timeout_s + config.engine.update_timeout_s
    return math.ceil(config.rollout.timeout_s + updates)


def _require_cluster_paths(config: TrainConfig) -> None:
    reference = config.objective.reference
    paths = {
        "puzzles.file": config.puzzles.file,
        "puzzles.validation_file": config.puzzles.validation_file,
        "puzzles.held_out_file": config.puzzles.held_out_file,
        "value_net.path": config.value_net.path,
        "policy.path": config.policy.path,
        "objective.reference": "" if reference in ("start", "none") else reference,
    }
    for key, path in paths.items():
        is_hubs = key in ("policy.path", "objective.reference") and hub_name(path)[1]
        if path and not is_hubs and not path_or_uri(path).is_absolute():
            raise ConfigError(
                f"{key} must be an absolute path on the cluster, which has no files of this "
                f"machine, or a URI (of a hub's model also its name with a revision, such as "
                f"owner/name@main): got {path!r}"
            )
