"""Where a run keeps its files, and the refusal to mix two runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.config import TrainConfig
from cast_ray.config_file import load_config, save_config
from cast_ray.errors import RunDirectoryError
from cast_ray.files import refusals_named, written_aside

_CHECKPOINT = "step-{:05d}"


class RunDirectory:
    """The layout of one run directory (DESIGN: command line)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.parquet"
        self.events = path / "tensorboard"
        self.trajectories = path / "trajectories"
        self.evaluations = path / "evaluations"
        self.puzzles = path / "puzzles"
        self.checkpoints = path / "checkpoints"
        self.initial_model = path / "initial_model"
        self.start_model = path / "start_model"
        self.model = path / "model"
        self.report = path / "report.html"
        self.summary = path / "summary.json"

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> RunDirectory:
        """Make a new run directory.

        Raises:
            RunDirectoryError: the directory holds something already.
            EnvironmentSetupError: it cannot be written.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunDirectoryError(
                f"{path} is not empty; give another run_dir=PATH, or --resume to go on with it"
            )
        run = cls(path)
        with refusals_named(path):
            for folder in (run.trajectories, run.evaluations, run.puzzles, run.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
        save_config(config, run.config)
        return run

    @classmethod
    def reopen(cls, path: Path, config: TrainConfig) -> RunDirectory:
        """Open the directory of an interrupted run.

        Only ``run_dir`` and a larger ``steps`` may differ from the stored configuration.

        Raises:
            RunDirectoryError: no run is there, or it has another configuration; the keys that
                differ are named.
        """
        run = cls.existing(path)
        stored = load_config(run.config, [])
        longer = max(config.steps, stored.steps)
        expected = replace(stored, run_dir=config.run_dir, steps=longer)
        if config != expected:
            differing = _differing_keys(asdict(expected), asdict(config))
            raise RunDirectoryError(
                f"{path} belongs to another configuration: {', '.join(differing)}; resume with "
                "the same values (steps may grow) or give another run_dir=PATH"
            )
        save_config(config, run.config)
        return run

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

    def write_trajectories(self, step: int, table: pa.Table) -> None:
        """Keep the trajectories of one trained step."""
        write_table(self.trajectories / f"step-{step:05d}.parquet", table)

    def inspection(self, step: int) -> Path:
        """Return where the batch of a step that stopped the run is kept."""
        return self.path / "inspection" / f"step-{step:05d}.parquet"

    def trajectory_files(self) -> list[Path]:
        """Return the steps' files in order."""
        return sorted(self.trajectories.glob("step-*.parquet"))

    def checkpoint(self, step: int) -> Path:
        """Return the place of one step's checkpoint."""
        return self.checkpoints / _CHECKPOINT.format(step)

    def newest_checkpoint(self) -> Path | None:
        """Return the newest complete checkpoint; unfinished ones carry another name."""
        whole = sorted(p for p in self.checkpoints.glob("step-*") if p.suffix != ".partial")
        return whole[-1] if whole else None

    def steps_done(self) -> int:
        """Return the step of the newest checkpoint; 0 where there is none."""
        newest = self.newest_checkpoint()
        return int(newest.name.removeprefix("step-")) if newest else 0

    def drop_old_checkpoints(self, *, kept: int) -> None:
        """Remove all but the newest ``kept`` checkpoints."""
        whole = sorted(p for p in self.checkpoints.glob("step-*") if p.suffix != ".partial")
        for path in whole[:-kept]:
            shutil.rmtree(path)

    def forget_after(self, step: int) -> None:
        """Remove trajectories of steps after ``step``: they will be played anew."""
        for path in self.trajectory_files():
            if int(path.stem.removeprefix("step-")) > step:
                path.unlink()

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write ``summary.json``."""
        with written_aside(self.summary) as aside:
            aside.write_text(json.dumps(summary, indent=2) + "\n")


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file that is whole or absent."""
    with written_aside(path) as aside:
        pq.write_table(table, aside, compression="zstd")


def _differing_keys(stored: dict[str, Any], given: dict[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for name, value in given.items():
        if isinstance(value, dict):
            keys += _differing_keys(stored[name], value, f"{prefix}{name}.")
        elif stored[name] != value:
            keys.append(f"{prefix}{name} ({stored[name]!r} there, {value!r} given)")
    return keys
