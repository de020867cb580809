"""Answers questions about the runs below one root, from their files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from cast_ray.config.load import load_config
from cast_ray.errors import (
    CastRayError,
    ColumnUnknown,
    RunDirectoryError,
    StepUnknown,
    TrajectoryUnknown,
)
from cast_ray.parquet import read_table
from cast_ray.rollout.specs import success_of
from cast_ray.runs.metrics import metric_facts, read_metrics, read_metrics_frame
from cast_ray.runs.report.episode import shown_boards
from cast_ray.runs.report.figures import plain, run_data
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.summary import read_summary
from cast_ray.statistics import Success
from serve.site.runs.episode import StoredEpisode, read_episode
from serve.site.runs.root import ReadCache, RunRoot, damage_named
from serve.site.runs.steps import StepFilter, StepPage, page_of, read_step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of the list of runs."""

    name: str
    """Relative to the root; ``.`` = the root itself."""
    game: str = ""
    tier: str = ""
    algorithm: str = ""
    model: str | None = None
    """The model that the run started from; None = the small policy that it made itself."""
    steps: int = 0
    """Done so far."""
    planned_steps: int = 0
    started: str | None = None
    """ISO time, UTC, of the oldest of its files; of the resumption where none is older."""
    before: Success | None = None
    """On the held-out boards, before training; None = not played yet."""
    after: Success | None = None
    finished: bool = False
    problem: str | None = None
    """Why the run cannot be read, in a sentence; all else is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """One run."""

    summary: RunSummary
    config: Mapping[str, Any]
    """As resolved, sections inside. Any: plain values, none infinite or NaN."""
    columns: tuple[str, ...]
    """Its numeric metrics."""
    trajectory_steps: tuple[int, ...]
    """Steps whose trajectories are stored."""


def read_success(path: Path) -> Success | None:
    """Return the success rate of an evaluation from its games; None if it has none.

    Raises:
        DamagedFileError: it is no table of games.
    """
    games = read_table(path, ["puzzle_id", "end_reason"])
    return success_of(games, seed=0) if len(games) else None


def read_figures(path: Path) -> pl.DataFrame:
    """Return the numeric columns of ``metrics.parquet``.

    Raises:
        DamagedFileError, RunDirectoryError: it is no table of metrics.
    """
    frame = read_metrics_frame(path)
    if not frame.schema.get("step", pl.Null()).is_integer():
        raise RunDirectoryError(f"{path.name} is no table of metrics: it has no numbers of steps")
    return frame.select(pl.selectors.numeric())


def metric_columns(figures: pl.DataFrame, wanted: Sequence[str]) -> dict[str, list[float | None]]:
    """Return some columns, all without ``wanted``: one entry per step, None = not measured.

    ``step`` is always there, and the first.

    Raises:
        ColumnUnknown: there is no such metric.
    """
    unknown = [name for name in wanted if name not in figures.columns]
    if unknown:
        raise ColumnUnknown(
            f"there is no numeric metric {unknown[0][:80]!r}: see the columns of the run"
        )
    names = dict.fromkeys(["step", *(wanted or figures.columns)])
    return {
        name: [
            value if value is not None and math.isfinite(value) else None
            for value in figures[name].to_list()
        ]
        for name in names
    }


T = TypeVar("T")

_SMALL_FILES = 1024
"""Configurations, summaries and success rates to keep."""
_METRICS = 256
"""Tables of metrics: more than most lists have runs, or each listing would read all again."""
_STEPS = 16
"""Lists of steps."""


class RunBrowser:
    """Reads run directories, finished or not. Thread-safe.

    A run that does not exist or is outside of the root raises ``NotStoredError``; a broken file
    raises ``RunDirectoryError``, ``ConfigError`` or ``TrajectoryError``, which name it.
    """

    def __init__(self, root: Path) -> None:
        """Open a root.

        Raises:
            RunDirectoryError: there is no such directory.
        """
        self._root = RunRoot(root)
        self._configs = ReadCache(
            lambda path: load_config(path, [], is_stored=True), max_entries=_SMALL_FILES
        )
        self._summaries = ReadCache(read_summary, max_entries=_SMALL_FILES)
        self._successes = ReadCache(read_success, max_entries=_SMALL_FILES)
        self._figures = ReadCache(read_figures, max_entries=_METRICS)
        self._rows = ReadCache(read_metrics, max_entries=_METRICS)
        self._steps = ReadCache(read_step, max_entries=_STEPS)

    def runs(self) -> tuple[RunSummary, ...]:
        """Return all runs, newest first; one that cannot be read says why."""
        found = [self._line(name) for name in self._root.names()]
        return tuple(sorted(found, key=lambda run: run.started or "", reverse=True))

    def run(self, name: str) -> RunDetails:
        """Return one run.

        Raises:
            RunUnknown: there is none of that name.
        """
        run = self._root.run(name)
        figures = self._read(self._figures, run.metrics)
        return RunDetails(
            summary=self._summary(name, run),
            config=plain(asdict(self._configs.get(self._root.file(run.config)))),
            columns=() if figures is None else tuple(figures.columns),
            trajectory_steps=_steps_of(run),
        )

    def metrics(self, name: str, columns: Sequence[str] = ()) -> dict[str, list[float | None]]:
        """Return figures of one run as ``metric_columns`` does.

        Raises:
            RunUnknown, ColumnUnknown: there is no such run or metric.
        """
        run = self._root.run(name)
        figures = self._read(self._figures, run.metrics)
        if figures is None:
            figures = read_figures(run.metrics)  # before the first step: empty columns
        return metric_columns(figures, columns)

    def charts(self, name: str) -> dict[str, Any]:  # Any: as ``run_data`` has it
        """Return what the charts of one run are drawn from, without its groups.

        Of a table that another version wrote these are its numbers alone.

        Raises:
            RunUnknown: there is no such run.
        """
        run = self._root.run(name)
        config = self._configs.get(self._root.file(run.config))
        try:
            steps = self._read(self._rows, run.metrics) or []
        except RunDirectoryError:
            return {"columns": self.metrics(name), "metrics": metric_facts()}
        return run_data(steps, (), config)

    def step(self, name: str, step: int, wanted: StepFilter) -> StepPage:
        """Return one page of a step's trajectories.

        Raises:
            RunUnknown, StepUnknown: there is no such run or step.
        """
        rows = self._read(self._steps, self._step_file(name, step))
        if rows is None:  # moved aside just now
            raise StepUnknown(f"step {step} of {name} is being played again: try later")
        page = page_of(step, rows, wanted)
        for group in page.groups:
            (group["board"],) = shown_boards(group["game"], [group.pop("state")])
        return page

    def trajectory(
        self, name: str, step: int, *, group: int, episode: int, attempt: int | None = None
    ) -> StoredEpisode:
        """Return one trajectory; without ``attempt`` the last.

        Raises:
            RunUnknown, StepUnknown, TrajectoryUnknown: there is no such run, step or trajectory.
        """
        path = self._step_file(name, step)
        with damage_named(path):
            found = read_episode(path, group=group, episode=episode, attempt=attempt)
        if found is None:
            which = "" if attempt is None else f", attempt {attempt}"
            raise TrajectoryUnknown(
                f"step {step} of {name} has no trajectory of group {group}, episode {episode}"
                f"{which}: see the list of the step"
            )
        return found

    def _line(self, name: str) -> RunSummary:
        try:
            return self._summary(name, self._root.run(name))
        except CastRayError as error:
            return RunSummary(name=name, problem=str(error))

    def _summary(self, name: str, run: RunDirectory) -> RunSummary:
        config = self._configs.get(self._root.file(run.config))
        stored = self._read(self._summaries, run.summary) or {}
        figures = self._read(self._figures, run.metrics)
        return RunSummary(
            name=name,
            game=config.game,
            tier=config.tier,
            algorithm=config.algorithm,
            model=config.policy.path or None,
            steps=0 if figures is None or figures.is_empty() else int(figures["step"][-1]),
            planned_steps=config.steps,
            started=_started(run),
            before=self._success(run, "before", stored.get("before")),
            after=self._success(run, "after", stored.get("after")),
            finished=stored.get("after") is not None and stored.get("steps", 0) >= config.steps,
        )

    def _success(
        self, run: RunDirectory, name: str, stored: dict[str, float] | None
    ) -> Success | None:
        """Return the summary's success rate, else that of the games."""
        if stored is not None:
            return Success(**stored)  # pyright: ignore[reportArgumentType]
        return self._read(self._successes, run.evaluations / f"{name}.parquet")

    def _read(self, cache: ReadCache[T], path: Path) -> T | None:
        """Return the value of a file; None if there is none."""
        try:
            return cache.get(self._root.file(path))
        except FileNotFoundError:
            return None

    def _step_file(self, name: str, step: int) -> Path:
        """Return the file of a step's trajectories.

        Raises:
            RunUnknown, StepUnknown: there is no such run or step.
        """
        path = self._root.run(name).trajectory_file(step)
        if not path.is_file():
            raise StepUnknown(
                f"{name} has no trajectories of step {step}: see the run's trajectory_steps"
            )
        return self._root.file(path)


def _steps_of(run: RunDirectory) -> tuple[int, ...]:
    digits = [path.stem.removeprefix("step-") for path in run.trajectory_files()]
    return tuple(sorted(int(text) for text in digits if text.isdecimal()))


def _started(run: RunDirectory) -> str:
    """Return the ISO time, UTC, of the oldest file that a run writes early and keeps.

    A configuration is written again when a run is resumed; earlier games are older.
    """
    early = (run.config, run.evaluations / "before.parquet", run.trajectory_file(1))
    try:
        oldest = min(path.stat().st_mtime for path in early if path.is_file())
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{run.path.name} is being removed: reload the list") from error
    return datetime.fromtimestamp(oldest, UTC).isoformat()
