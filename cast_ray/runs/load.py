"""A run as tables, for notebooks and scripts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import RunDirectoryError
from cast_ray.parquet import read_table
from cast_ray.runs.metrics import read_metrics_frame, read_validation
from cast_ray.runs.remote_run import readable_copy
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.uris import path_or_uri


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The files of a run as tables; nothing is cached, so a running one can be watched."""

    directory: RunDirectory

    @property
    def config(self) -> TrainConfig:
        """All values of the run."""
        return load_config(self.directory.config, [], is_stored=True)

    @property
    def metrics(self) -> pl.DataFrame:
        """A row per step, with the columns of docs/metrics.md."""
        return read_metrics_frame(self.directory.metrics)

    @property
    def validation(self) -> pl.DataFrame:
        """Attempts and successes by step and board."""
        return read_validation(self.directory.validation)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The held-out results; None while the run is not finished."""
        return self.directory.read_summary() or None

    def trajectories(self, step: int) -> pa.Table:
        """Return what a step trained on, a row per episode (``BATCH_SCHEMA``).

        Raises:
            RunDirectoryError: the run has no such step.
            DamagedFileError: the file cannot be read.
        """
        if not self.directory.trajectory_file(step).is_file():
            raise RunDirectoryError(
                f"{self.directory.path} has the steps 1 to {self.directory.last_logged_step}, not "
                f"{step}"
            )
        return self.directory.read_trajectories(step)

    def evaluation(self, name: str) -> pa.Table:
        """Return the episodes on the held-out boards: ``before``, ``after``, or ``step-NNNNN``.

        Raises:
            RunDirectoryError: there is no such evaluation.
        """
        path = self.directory.evaluations / f"{name}.parquet"
        if not path.is_file():
            found = ", ".join(sorted(file.stem for file in path.parent.glob("*.parquet")))
            raise RunDirectoryError(f"{path} does not exist; there are: {found or 'none'}")
        return read_table(path)


def load_run(run: str | Path) -> StoredRun:
    """Open a run directory, or a copy of a run at a URI, for reading.

    Raises:
        RunDirectoryError: there is no run.
        StorageError: the store cannot be reached.
    """
    return StoredRun(RunDirectory.existing(readable_copy(path_or_uri(str(run)))))
