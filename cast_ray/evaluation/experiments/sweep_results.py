"""The results of a sweep: a table with one row per trial, and a plot that compares them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from cast_ray.evaluation.experiments.plots import colours_of, plain, save_svg
from cast_ray.evaluation.experiments.sweep_plan import ARM, Trial
from cast_ray.parquet import write_frame
from cast_ray.runs.metrics import read_metrics
from cast_ray.runs.run_directory import RunDirectory

_PANEL_INCHES = (5.2, 3.6)


def results_table(
    trials: Sequence[Trial], folder: Path, failures: Mapping[str, str]
) -> pl.DataFrame:
    """Return a table with one row per trial.

    Args:
        trials: all of the sweep.
        folder: holds their run directories, by name.
        failures: why trials failed, by name.

    Returns:
        ``name``; ``failure`` (null if it ended); each swept key as text; ``before`` and
        ``after`` (share of held-out attempts solved) with ``_low`` and ``_high`` (95%), ``gain``,
        ``attempts``, ``seconds``; and lists over steps: ``step``, ``success``,
        ``seconds_total``, ``validation_success``. Unknown values are null.
    """
    rows = [_row(trial, RunDirectory(folder / trial.name), failures) for trial in trials]
    return pl.DataFrame(rows, infer_schema_length=None)


def _row(trial: Trial, run: RunDirectory, failures: Mapping[str, str]) -> dict[str, Any]:
    summary = run.read_summary()
    steps = read_metrics(run.metrics) if run.metrics.is_file() else []
    row: dict[str, Any] = {"name": trial.name, "failure": failures.get(trial.name), **trial.values}
    for when in ("before", "after"):
        found = summary.get(when) or {}
        row[when] = found.get("success")
        row |= {f"{when}_{end}": found.get(end) for end in ("low", "high")}
    before, after = row["before"], row["after"]
    return row | {
        "gain": None if before is None or after is None else after - before,
        "attempts": (summary.get("after") or {}).get("n"),
        "seconds": summary.get("seconds"),
        "step": [one.step for one in steps],
        "success": [one.success for one in steps],
        "seconds_total": [one.seconds_total for one in steps],
        "validation_success": [one.validation_success for one in steps],
    }


def write_results(trials: Sequence[Trial], table: pl.DataFrame, folder: Path) -> None:
    """Write ``results.parquet`` and ``results.svg`` into a folder."""
    write_frame(folder / "results.parquet", table)
    save_svg(comparison(trials, table), folder / "results.svg")


def comparison(trials: Sequence[Trial], table: pl.DataFrame) -> Figure:
    """Draw the curves of training and validation and the held-out results, a colour per setting.

    Trials that differ only in the seed are one setting. Thin lines are trials; a thick line is
    their mean at the steps that all of them have.
    """
    settings = list(dict.fromkeys(_label(trial) for trial in trials))
    height = max(_PANEL_INCHES[1], 1.2 + 0.34 * len(settings))
    figure = Figure(figsize=(3 * _PANEL_INCHES[0], height), layout="constrained")
    training, validation, after = figure.subplots(1, 3)
    panels = (
        (training, "success", "Boards solved in training"),
        (validation, "validation_success", "Validation boards"),
    )
    colours = colours_of(settings)
    for place, label in enumerate(settings):
        names = [trial.name for trial in trials if _label(trial) == label]
        rows = table.filter(pl.col("name").is_in(names)).to_dicts()
        colour = colours[label]
        for axes, column, _ in panels:
            _draw_curves(axes, rows, column, colour)
        _draw_after(after, rows, place, colour)
    for axes, _, title in panels:
        axes.set(title=title, xlabel="step", ylabel="share of episodes", ylim=(0, 1))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    after.set(title="Held-out boards after training", xlabel="share of attempts, 95% interval")
    after.set_xlim(0, 1)
    after.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    after.set_yticks(range(len(settings)), settings)
    for label, tick in zip(settings, after.get_yticklabels(), strict=True):
        tick.set_color(colours[label])
    after.invert_yaxis()
    for axes in (training, validation, after):
        plain(axes)
    return figure


def _label(trial: Trial) -> str:
    setting = trial.setting or {"seed": "all"}
    return ", ".join(
        value if key == ARM else f"{key.rpartition('.')[2]} {value}"
        for key, value in setting.items()
    )


def _draw_curves(axes: Axes, rows: list[dict[str, Any]], column: str, colour: str) -> None:
    each = [
        {step: y for step, y in zip(row["step"], row[column], strict=True) if y is not None}
        for row in rows
    ]
    for one in each:
        axes.plot(list(one), list(one.values()), color=colour, linewidth=0.8, alpha=0.5)
    common = set.intersection(*map(set, each)) if each else set()
    if len(rows) > 1 and common:
        steps = sorted(common)
        means = [np.mean([one[step] for one in each]) for step in steps]
        axes.plot(steps, means, color=colour, linewidth=2.2)


def _draw_after(axes: Axes, rows: list[dict[str, Any]], place: int, colour: str) -> None:
    known = [row for row in rows if row["after"] is not None]
    for number, row in enumerate(known):
        height = place + 0.16 * (number - (len(known) - 1) / 2) / max(1, len(known) / 3)
        axes.plot([row["after_low"], row["after_high"]], [height, height], color=colour, alpha=0.6)
        axes.plot(row["after"], height, "o", color=colour, markersize=4)
    if len(known) > 1:
        mean = math.fsum(row["after"] for row in known) / len(known)
        axes.plot(mean, place, "|", color=colour, markersize=16, markeredgewidth=2)
    missing = len(rows) - len(known)
    if missing:
        words = f"{missing} of {len(rows)} did not end"
        axes.annotate(words, (0.01, place), va="center", fontsize=7, color=colour)
