"""One run as a list shows it, and its configuration and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import ColumnUnknown, RunDirectoryError
from cast_ray.parquet import read_frame
from cast_ray.runs.metrics import read_metrics_frame
from cast_ray.statistics import Success, success_rate


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
    games = read_frame(path, ["puzzle_id", "end_reason"])
    if games.is_empty():
        return None
    solved = (games["end_reason"] == SOLVED).cast(pl.Float64)
    return success_rate(games["puzzle_id"].to_list(), solved.to_list(), seed=0)


def read_figures(path: Path) -> pl.DataFrame:
    """Return the numeric columns of ``metrics.parquet``.

    Raises:
        DamagedFileError, RunDirectoryError: it is no table of metrics.
    """
    frame = read_metrics_frame(path)
    if "step" not in frame.columns:
        raise RunDirectoryError(f"{path.name} is no table of metrics: it has no column step")
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


def plain(value: Any) -> Any:
    """Return a configuration's value in types that JSON has. Any: a value of any section."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
