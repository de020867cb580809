"""Steps as rows of a table that fits the terminal and as sentences, and how their time splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from rich.text import Text

from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.report.wording import UNKNOWN, duration, percent, signed


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """The wall time of steps in disjoint parts, in seconds, and the work that overlaps."""

    generation: float
    """Outside the learner's work and the weight sync."""
    learner: float
    sync: float
    checkpoint: float
    """After the step; with asynchronous rollouts the engines keep playing."""
    validation: float
    """0 with asynchronous rollouts, which do not wait for it."""
    other: float
    """The rest of the steps' wall time."""
    solver: float
    """Overlaps with generation, so it is not in the sum."""
    environment: float
    """Summed over concurrent episodes; overlaps with generation, so it is not in the sum."""
    generation_overlap: float
    """Of asynchronous rollouts during the learner's work; not in the sum."""
    validation_overlap: float
    """Of asynchronous runs, during the next steps; not in the sum."""

    @property
    def total(self) -> float:
        """Return the wall time of the steps, their validation and checkpoints included."""
        in_steps = self.generation + self.learner + self.sync + self.other
        return in_steps + self.checkpoint + self.validation

    @property
    def overhead_fraction(self) -> float:
        """Return the share of a step that neither plays nor learns.

        Validation and checkpoints come after the step and do not count.
        """
        step = self.total - self.validation - self.checkpoint
        return (self.sync + self.other) / step if step > 0 else 0.0


TIME_PARTS = ("generation", "learner", "sync", "checkpoint", "validation", "other")
"""Of ``TimeSplit``, disjoint."""


def was_watched(row: StepMetrics) -> bool:
    """Return whether it is known where this step's time went."""
    return not row.is_replayed and not math.isnan(row.seconds_generation)


def wall_seconds(row: StepMetrics, *, is_asynchronous: bool = False) -> float:
    """Return the wall time of a step, including the validation and checkpoint after it."""
    is_overlapping = is_asynchronous or row.staleness_max > 0
    validation = 0 if is_overlapping else row.seconds_validation
    return row.seconds_total + row.seconds_checkpoint + validation


def time_split(rows: Iterable[StepMetrics], *, is_asynchronous: bool = False) -> TimeSplit:
    """Return how the time of all these steps together is divided.

    Generation during the learner's work counts as the learner's. Steps whose time is not known are
    left out.

    Args:
        rows: the steps.
        is_asynchronous: whether the run's ``max_staleness`` is above 0. A step that trained on
            stale tokens shows that by itself; the first steps of such a run do not.
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
        generation_overlap=row.seconds_generation - alone,
        validation_overlap=row.seconds_validation if is_asynchronous else 0.0,
    )


class Column(NamedTuple):
    """One column of the table."""

    group: str
    name: str
    width: int
    """In characters, including the space before it."""
    style: str
    write: Callable[[StepMetrics], str]


OVERLAP_NOTE = "generation in brackets overlapped with the learner's work"
"""Explains rows of asynchronous rollouts; shown once."""
_EPISODES, _TURNS, _SECONDS = "episodes", "turns, by the solver", "seconds"


def _in_layout(value: float, layout: str = "{:.1f}") -> str:
    return UNKNOWN if math.isnan(value) else layout.format(value)


def _number(name: str, layout: str = "{:.1f}") -> Callable[[StepMetrics], str]:
    return lambda row: _in_layout(getattr(row, name), layout)


def _share(name: str) -> Callable[[StepMetrics], str]:
    return lambda row: percent(getattr(row, name))


def _validation(row: StepMetrics) -> str:
    return "" if row.validation_success is None else percent(row.validation_success)


def _no_op(row: StepMetrics) -> str:
    return percent(row.ineffective_fraction + row.invalid_fraction)


def _credit(row: StepMetrics) -> str:
    return signed(row.shifted_advantage_mean, digits=2)


def _generation(row: StepMetrics) -> str:
    return _in_layout(row.seconds_generation, "({:.1f})" if row.staleness_max else "{:.1f}")


def _other(row: StepMetrics) -> str:
    return _in_layout(time_split([row]).other) if was_watched(row) else UNKNOWN


_COLUMNS = (
    Column(_EPISODES, "solved", 8, "bold", _share("success")),
    Column(_EPISODES, "valid.", 7, "bold cyan", _validation),
    Column(_EPISODES, "turns", 6, "", _number("turns_mean")),
    Column(_EPISODES, "lost", 5, "", _share("lost_fraction")),
    Column(_TURNS, "progress", 10, "green", _share("progress_fraction")),
    Column(_TURNS, "harm", 5, "yellow", _share("harmful_fraction")),
    Column(_TURNS, "no-op", 6, "", _no_op),
    Column(_TURNS, "credit", 7, "", _credit),
    Column(_SECONDS, "gen", 7, "", _generation),
    Column(_SECONDS, "solver", 7, "dim", _number("seconds_solver", "({:.1f})")),
    Column(_SECONDS, "learn", 6, "", _number("seconds_learner")),
    Column(_SECONDS, "sync", 5, "", _number("seconds_sync")),
    Column(_SECONDS, "other", 6, "", _other),
    Column("", "tokens/s", 10, "", _number("tokens_per_s", "{:,.0f}")),
)
_FIRST_TO_GO = ("no-op", "tokens/s", "lost", "valid.", "turns", "sync", "solver")
"""Columns that a narrow terminal leaves out, in this order."""
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
    """Return a step as one line of a log, with all columns of the table."""
    groups = [
        (f"{group}: " if group else "")
        + ", ".join(f"{one.name} {text}" for one in columns if (text := one.write(row)))
        for group, columns in groupby(_COLUMNS, key=lambda column: column.group)
    ]
    told = " | ".join(groups)
    seconds = f"{row.seconds_total:.1f} s"
    return f"step {row.step}/{total_steps} in {seconds} | {told}, {duration(seconds_left)} left"
