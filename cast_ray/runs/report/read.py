"""Reads everything the report needs from a run directory, whether the run is finished or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.envs.text_env import SOLVED
from cast_ray.parquet import opened, read_frame, read_rows, read_table
from cast_ray.rollout.specs import success_of
from cast_ray.rollout.trajectory import SCORED_SCHEMA, check_schema, costs_of
from cast_ray.runs.metrics import StepMetrics, read_metrics
from cast_ray.runs.recoveries import Recovery, read_recoveries
from cast_ray.runs.report.step_table import wall_seconds
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.statistics import Success

_COLUMNS = ["puzzle_id", "puzzle", "game", "tier", "seed", "turn_budget", "answers", "actions"]
_COLUMNS += ["effects", "states", "cost_estimates", "end_reason", "cost_to_go", "cost_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One attempt at one puzzle."""

    puzzle_id: str
    cost: float
    """Of the start board; inf = infinite, NaN = unknown."""
    end_reason: str
    row: Mapping[str, Any]  # Any: as Arrow hands it out
    """As it is stored."""

    @property
    def is_solved(self) -> bool:
        """Whether the goal was reached."""
        return self.end_reason == SOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The held-out boards as one policy played them."""

    success: Success
    episodes: tuple[Episode, ...]
    """Empty if only the summary is left."""

    def by_puzzle(self) -> dict[str, list[Episode]]:
        """Return the attempts at each puzzle, both in stored order."""
        attempts: dict[str, list[Episode]] = {}
        for episode in self.episodes:
            attempts.setdefault(episode.puzzle_id, []).append(episode)
        return attempts


def read_episodes(path: Path) -> tuple[Episode, ...]:
    """Return the episodes of an evaluation; none if the file does not exist.

    Raises:
        DamagedFileError: the file cannot be read.
        TrajectoryError: it is a table of another stage.
    """
    if not path.is_file():
        return ()
    with opened(path) as file:
        check_schema(file.schema_arrow.empty_table(), SCORED_SCHEMA, name=path)
        rows = read_rows(file, _COLUMNS).to_pylist()
    return tuple(
        Episode(
            puzzle_id=row["puzzle_id"],
            cost=float(costs_of(row)[0]),
            end_reason=row["end_reason"],
            row=row,
        )
        for row in rows
    )


def share_solved(episodes: Sequence[Episode]) -> float:
    """Return the share of episodes that solved their puzzle; at least one is needed."""
    return sum(episode.is_solved for episode in episodes) / len(episodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """The outcomes of one step's groups."""

    step: int
    none_solved: int
    mixed: int
    """The only groups in which the outcome tells trajectories apart."""
    all_solved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContents:
    """The contents of a run directory."""

    name: str
    config: TrainConfig
    config_text: str
    """The text of ``config.yaml``."""
    steps: tuple[StepMetrics, ...]
    groups: tuple[GroupCounts, ...]
    recoveries: tuple[Recovery, ...]
    """Under all drivers of the run."""
    before: Evaluation | None
    after: Evaluation | None
    is_finished: bool
    """False again if a finished run was resumed with more steps."""
    seconds: float
    """Of the job if it has ended, else of its steps so far."""
    outcome_alone: RunContents | None
    """The run without credit from the same start."""


def read_run(run: RunDirectory) -> RunContents:
    """Return the contents of a run directory.

    Raises:
        RunDirectoryError: there is no run, or its summary is broken.
        DamagedFileError, TrajectoryError: as for ``read_episodes``.
    """
    config = load_config(RunDirectory.existing(run.path).config, [], is_stored=True)
    summary = run.read_summary()
    steps = tuple(read_metrics(run.metrics))
    is_asynchronous = config.max_staleness > 0
    is_finished = summary.get("after") is not None and summary.get("steps", 0) >= config.steps
    other = RunDirectory(run.outcome_alone)
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
        is_finished=is_finished,
        seconds=summary["seconds"] if is_finished else so_far,
        outcome_alone=read_run(other) if other.config.is_file() else None,
    )


def _evaluation(
    run: RunDirectory, name: str, summary: dict[str, Any], config: TrainConfig
) -> Evaluation | None:
    """Return an evaluation, with the summary's success rate or, without one, that of the games."""
    stored = summary.get(name)
    path = run.evaluations / f"{name}.parquet"
    episodes = read_episodes(path)
    if stored is None and not episodes:
        return None
    if stored is None:
        games = read_table(path, ["puzzle_id", "end_reason"])
        return Evaluation(success=success_of(games, seed=config.seed), episodes=episodes)
    return Evaluation(success=Success(**stored), episodes=episodes)


def _group_counts(path: Path) -> GroupCounts:
    """Return how many groups of a step solved their puzzle never, sometimes and always."""
    shares = (
        read_frame(path, ["group", "end_reason"])
        .group_by("group")
        .agg((pl.col("end_reason") == SOLVED).mean())["end_reason"]
    )
    return GroupCounts(
        step=int(path.stem.removeprefix("step-")),
        none_solved=int((shares == 0).sum()),
        mixed=int(((shares > 0) & (shares < 1)).sum()),
        all_solved=int((shares == 1).sum()),
    )
