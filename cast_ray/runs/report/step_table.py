"""The steps of a training run as lines of a table that fits the terminal, and as sentences.

Where the seconds of a step go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.report.wording import duration, percent, signed, written


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """The wall time of steps in parts that do not overlap, in seconds; and what ran beside them."""

    generation: float
    """While neither the learner nor anything else of the step was at work."""
    learner: float
    sync: float
    checkpoint: float
    """After the step; with asynchronous rollouts the engines go on meanwhile."""
    validation: float
    """0 with asynchronous rollouts, where nothing waits for it."""
    other: float
    """What is left of the steps' wall time."""
    solver: float
    """Runs beside generation, so it is no part of the sum."""
    environment: float
    """Summed over episodes that run at once, beside generation: no part of the sum either."""
    generation_beside: float
    """Of asynchronous rollouts while the learner worked: no part of the sum."""
    validation_beside: float
    """Of asynchronous runs, beside the next steps: no part of the sum."""

    @property
    def total(self) -> float:
        """Return the wall time of the steps, their validation and checkpoints included."""
        in_steps = self.generation + self.learner + self.sync + self.other
        return in_steps + self.checkpoint + self.validation

    @property
    def overhead_fraction(self) -> float:
        """Return the share of a step that neither plays nor learns.

        Validation and checkpoints, which come after it, are left out.
        """
        step = self.total - self.validation - self.checkpoint
        return (self.sync + self.other) / step if step > 0 else 0.0


def was_watched(row: StepMetrics) -> bool:
    """Return whether somebody who lived to tell saw where this step's time went."""
    return not row.is_replayed and not math.isnan(row.seconds_generation)


def wall_seconds(row: StepMetrics, *, is_asynchronous: bool = False) -> float:
    """Return what a step took of the run's time, with the validation and checkpoint after it."""
    is_beside = is_asynchronous or row.staleness_max > 0
    return row.seconds_total + row.seconds_checkpoint + (0 if is_beside else row.seconds_validation)


def time_split(rows: Iterable[StepMetrics], *, is_asynchronous: bool = False) -> TimeSplit:
    """Return how the time of all these steps together is divided.

    Generation beside the learner's work counts as the learner's. Steps that nobody watched are
    left out.

    Args:
        rows: the steps.
        is_asynchronous: whether the run's ``max_staleness`` is above 0; a step that trained on
            stale tokens proves it by itself, the first steps of such a run do not.
    """
    splits = [_split(row, is_asynchronous or row.staleness_max > 0) for row in rows]
    known = [split for split in splits if split is not None]
    return TimeSplit(
        **{
            name: math.fsum(getattr(split, name) for split in known)
            for name in TimeSplit.__dataclass_fields__
        }
    )


def _split(row: StepMetrics, is_asynchronous: bool) -> TimeSplit | None:
    if not was_watched(row):
        return None
    alone = row.seconds_generation
    if is_asynchronous:
        alone = max(0.0, min(alone, row.seconds_total - row.seconds_learner))
    accounted = alone + row.seconds_learner + row.seconds_sync
    return TimeSplit(
        generation=alone,
        learner=row.seconds_learner,
        sync=row.seconds_sync,
        checkpoint=row.seconds_checkpoint,
        validation=0.0 if is_asynchronous else row.seconds_validation,
        other=max(0.0, row.seconds_total - accounted),
        solver=row.seconds_solver,
        environment=row.seconds_environment,
        generation_beside=row.seconds_generation - alone,
        validation_beside=row.seconds_validation if is_asynchronous else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: where it stands, how wide it is and what it says of a step."""

    group: str
    name: str
    width: int
    """Characters, the space before it included."""
    style: str
    write: Callable[[StepMetrics], str]


BESIDE_NOTE = "generation in brackets ran beside the learner"
"""What a table with rows of asynchronous rollouts has to be told once."""
_UNKNOWN = "–"


def _number(value: float, layout: str = "{:.1f}") -> str:
    return written(value, layout.format, unknown=_UNKNOWN)


def _generation(row: StepMetrics) -> str:
    return _number(row.seconds_generation, "({:.1f})" if row.staleness_max else "{:.1f}")


_COLUMNS = (
    Column(
        group="episodes",
        name="solved",
        width=8,
        style="bold",
        write=lambda row: percent(row.success),
    ),
    Column(
        group="episodes",
        name="valid.",
        width=7,
        style="bold cyan",
        write=lambda row: "" if row.validation_success is None else percent(row.validation_success),
    ),
    Column(
        group="episodes",
        name="turns",
        width=6,
        style="",
        write=lambda row: f"{row.turns_mean:.1f}",
    ),
    Column(
        group="episodes",
        name="lost",
        width=5,
        style="",
        write=lambda row: percent(row.lost_fraction),
    ),
    Column(
        group="turns, by the solver",
        name="progress",
        width=10,
        style="green",
        write=lambda row: percent(row.progress_fraction),
    ),
    Column(
        group="turns, by the solver",
        name="harm",
        width=5,
        style="yellow",
        write=lambda row: percent(row.harmful_fraction),
    ),
    Column(
        group="turns, by the solver",
        name="no-op",
        width=6,
        style="",
        write=lambda row: percent(row.ineffective_fraction + row.invalid_fraction),
    ),
    Column(
        group="turns, by the solver",
        name="credit",
        width=7,
        style="",
        write=lambda row: signed(row.shifted_advantage_mean, digits=2),
    ),
    Column(
        group="seconds",
        name="gen",
        width=7,
        style="",
        write=_generation,
    ),
    Column(
        group="seconds",
        name="solver",
        width=7,
        style="dim",
        write=lambda row: _number(row.seconds_solver, "({:.1f})"),
    ),
    Column(
        group="seconds",
        name="learn",
        width=6,
        style="",
        write=lambda row: _number(row.seconds_learner),
    ),
    Column(
        group="seconds", name="sync", width=5, style="", write=lambda row: _number(row.seconds_sync)
    ),
    Column(
        group="seconds",
        name="other",
        width=6,
        style="",
        write=lambda row: _number(time_split([row]).other) if was_watched(row) else _UNKNOWN,
    ),
    Column(
        group="",
        name="tokens/s",
        width=10,
        style="",
        write=lambda row: _number(row.tokens_per_s, "{:,.0f}"),
    ),
)
_FIRST_TO_GO = ("no-op", "tokens/s", "lost", "valid.", "turns", "sync", "solver")
"""Columns that a narrow terminal does without, in this order."""
_STEP_WIDTH = 8
_ETA_WIDTH = 11


class StepTable:
    """Header and rows for one terminal width."""

    def __init__(self, width: int) -> None:
        columns = list(_COLUMNS)
        for name in _FIRST_TO_GO:
            if _STEP_WIDTH + _ETA_WIDTH + sum(column.width for column in columns) <= width:
                break
            columns = [column for column in columns if column.name != name]
        self._columns = columns

    def header(self) -> list[Text]:
        """Return two lines: the groups, then the names."""
        groups = Text(" " * _STEP_WIDTH, style="dim")
        for group, columns in groupby(self._columns, key=lambda column: column.group):
            width = sum(column.width for column in columns)
            groups.append(" " + f" {group} ".center(width - 1, "─") if group else " " * width)
        names = Text("step".rjust(_STEP_WIDTH), style="bold")
        for column in self._columns:
            names.append(column.name.rjust(column.width))
        return [groups, names.append("time left".rjust(_ETA_WIDTH))]

    def row(self, row: StepMetrics, *, total_steps: int, seconds_left: float) -> Text:
        """Return the line of one step."""
        line = Text(f"{row.step}/{total_steps}".rjust(_STEP_WIDTH))
        for column in self._columns:
            line.append(column.write(row).rjust(column.width), style=column.style)
        return line.append(duration(seconds_left).rjust(_ETA_WIDTH), style="dim")


def step_sentence(row: StepMetrics, *, total_steps: int, seconds_left: float) -> str:
    """Return one step as one line for a log."""
    validation = (
        ""
        if row.validation_success is None
        else f", validation {percent(row.validation_success, digits=1)}"
    )
    return (
        f"step {row.step}/{total_steps}: solved {percent(row.success, digits=1)}{validation}, "
        f"{row.turns_mean:.1f} turns, lost {percent(row.lost_fraction)} | "
        f"progress {percent(row.progress_fraction)}, harmful {percent(row.harmful_fraction)}, "
        f"no effect {percent(row.ineffective_fraction + row.invalid_fraction)}, "
        f"credit {signed(row.shifted_advantage_mean, digits=2)} | "
        f"{row.seconds_total:.1f} s: {_time_sentence(row)} | "
        f"{_number(row.tokens_per_s, '{:,.0f}')} tokens/s, {duration(seconds_left)} left"
    )


def _time_sentence(row: StepMetrics) -> str:
    if not was_watched(row):
        return f"learner {row.seconds_learner:.1f}, sync {row.seconds_sync:.1f}, rest not measured"
    split = time_split([row])
    beside = f" and {split.generation_beside:.1f} beside the learner" if row.staleness_max else ""
    return (
        f"generation {split.generation:.1f}{beside} (solver beside it {_number(split.solver)}), "
        f"learner {split.learner:.1f}, sync {split.sync:.1f}, other {split.other:.1f}"
    )
