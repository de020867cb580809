"""What a training run does differently inside a job of Ray."""

from __future__ import annotations

import os
import platform

from cast_ray.cluster.code_version import code_version, ray_version
from cast_ray.errors import ConfigError
from cast_ray.runs.uris import path_or_uri

SUBMITTED_BY = "CAST_RAY_SUBMITTED_BY"
"""Environment variable with the ``code_version`` of the machine that submitted the job."""
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it only for the command of a job."""


def is_ray_job() -> bool:
    """Return whether this process belongs to a job's command."""
    return _JOB_CONFIG in os.environ


def greeting() -> list[str]:
    """Return a job's first lines: the versions here, and whether the submitter's differ."""
    here, submitter = code_version(), os.environ.get(SUBMITTED_BY)
    lines = [
        f"cast-ray {here}, Ray {ray_version()}, Python {platform.python_version()} "
        f"on {platform.node()}"
    ]
    if submitter is not None and submitter != here:
        lines.append(
            f"warning: submitted from cast-ray {submitter}, but this node runs {here}: install the "
            "same on all nodes, or submit with --with-code"
        )
    return lines


def require_run_dir(run_dir: str) -> None:
    """Raise ConfigError unless a run directory outlives its job."""
    if not path_or_uri(run_dir).is_absolute():
        raise ConfigError(
            "in a job of Ray run_dir must be an absolute path, on storage that every node sees, or "
            f"a URI, because Ray deletes the job's own directory: got {run_dir!r}, give "
            "run_dir=/shared/runs/NAME or run_dir=s3://bucket/NAME"
        )
