"""Runs as the command line names them: a directory of this machine, or a URI."""

from __future__ import annotations

from pathlib import Path

from cast_ray.uris import is_uri


def stored_config(run_dir: str) -> Path | None:
    """Return the configuration that a run was started with; None where there is no run."""
    if is_uri(run_dir):
        from cast_ray.jobs.run_at_uri import stored_config as config_at_uri

        return config_at_uri(run_dir)
    file = Path(run_dir) / "config.yaml"
    return file if file.is_file() else None


def local_run_dir(run_dir: str) -> Path:
    """Return where a run's driver writes."""
    if is_uri(run_dir):
        from cast_ray.stored_run import working_copy

        return working_copy(run_dir)
    return Path(run_dir)


def readable(run: str, *, with_weights: bool = False) -> Path:
    """Return a run directory, copied to this host if it is at a URI."""
    if is_uri(run):
        from cast_ray.stored_run import readable_copy

        return readable_copy(run, with_weights=with_weights)
    return Path(run)
