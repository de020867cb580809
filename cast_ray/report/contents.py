"""Everything the report needs, read once from a run directory, finished or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from cast_ray.config import TrainConfig
from cast_ray.config_file import load_config
from cast_ray.errors import RunDirectoryError
from cast_ray.metrics import StepMetrics, Success, read_metrics, success_rate
from cast_ray.recoveries import Recovery, read_recoveries
from cast_ray.report.episodes import Evaluation, read_episodes
from cast_ray.report.time_split import wall_seconds
from cast_ray.run_directory import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """How the groups of one step came out."""

    step: int
    none_solved: int
    mixed: int
    """The only groups in which the outcome tells trajectories apart."""
    all_solved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContents:
    """One run, as its directory tells it."""

    name: str
    config: TrainConfig
    config_text: str
    """``config.yaml`` as it stands."""
    steps: tuple[StepMetrics, ...]
    groups: tuple[GroupCounts, ...]
    recoveries: tuple[Recovery, ...]
    """Of all drivers that the run has had."""
    before: Evaluation | None
    after: Evaluation | None
    is_finished: bool
    """A run that was resumed with more steps is open again until its new end."""
    seconds: float
    """Of the whole job if it has ended, else of its steps so far."""


def read_run(run: RunDirectory) -> RunContents:
    """Return the contents of a run directory.

    Raises:
        RunDirectoryError: there is no run, or one of its files is broken.
        TrajectoryError: a table is of another stage.
    """
    config = load_config(RunDirectory.existing(run.path).config, [])
    summary = _read_summary(run.summary)
    steps = tuple(read_metrics(run.metrics))
    is_asynchronous = config.max_staleness > 0
    so_far = sum(wall_seconds(row, is_asynchronous=is_asynchronous) for row in steps)
    return RunContents(
        name=run.path.resolve().name,
        config=config,
        config_text=run.config.read_text(),
        steps=steps,
        groups=tuple(_group_counts(path) for path in run.trajectory_files()),
        recoveries=tuple(read_recoveries(run.recoveries)),
        before=_evaluation(run, "before", summary, config),
        after=_evaluation(run, "after", summary, config),
        is_finished=summary.get("after") is not None and summary["steps"] >= config.steps,
        seconds=summary.get("seconds", so_far),
    )


def _read_summary(path: Path) -> dict[str, Any]:  # Any: a JSON object
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise RunDirectoryError(
            f"{path} is not valid JSON ({error}); move it away to write the report without it"
        ) from None


def _evaluation(
    run: RunDirectory, name: str, summary: dict[str, Any], config: TrainConfig
) -> Evaluation | None:
    """Return an evaluation; its success rate as the summary has it, else from the games."""
    stored = summary.get(name)
    path = run.evaluations / f"{name}.parquet"
    episodes = read_episodes(path, rescue=config.advantage.rescue)
    if stored is None and not episodes:
        return None
    if stored is None:
        success = success_rate(
            [episode.puzzle_id for episode in episodes],
            [float(episode.is_solved) for episode in episodes],
            seed=config.seed,
        )
    else:
        success = Success(**stored)
    return Evaluation(success=success, episodes=episodes)


def _group_counts(path: Path) -> GroupCounts:
    """Return how many groups of a step's trajectories tell good from bad by outcome."""
    shares = (
        pl.read_parquet(path, columns=["group", "reward"])
        .group_by("group")
        .agg(pl.col("reward").mean())["reward"]
    )
    return GroupCounts(
        step=int(path.stem.removeprefix("step-")),
        none_solved=int((shares == 0).sum()),
        mixed=int(((shares > 0) & (shares < 1)).sum()),
        all_solved=int((shares == 1).sum()),
    )
