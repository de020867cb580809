"""The chart of where the seconds went, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cast_ray.metrics import StepMetrics
from cast_ray.report.bars import Part, stacked_bars
from cast_ray.report.phrasing import duration, percent
from cast_ray.report.time_split import TimeSplit, time_split

_TIME_PARTS = (
    ("generation", "time-generation"),
    ("learner", "time-learner"),
    ("sync", "time-sync"),
    ("validation", "time-validation"),
    ("other", "time-other"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One line of the table beside the time chart."""

    label: str
    style: str
    seconds: str
    """Mean of a step."""
    share: str
    """Of the whole; empty for what runs beside the rest."""
    width: float
    """The same share in percent, for a bar."""


def time_chart(steps: Sequence[StepMetrics]) -> Markup:
    """Return the wall time of each step, by what it was spent on."""
    splits = [time_split([row]) for row in steps]
    return stacked_bars(
        [row.step for row in steps],
        [
            Part(label=name, style=style, values=tuple(getattr(split, name) for split in splits))
            for name, style in _TIME_PARTS
        ],
        title="Seconds of each step by what they were spent on",
        write=lambda value: f"{value:.3g} s",
        beside=Part(
            label="solver, beside generation",
            style="time-solver",
            values=tuple(split.solver for split in splits),
        ),
    )


def time_rows(split: TimeSplit, *, num_steps: int) -> list[TimeRow]:
    """Return the table of time: the parts of a step, then what ran beside them."""
    total = split.total or 1.0
    rows = [
        TimeRow(
            label=name,
            style=style,
            seconds=duration(getattr(split, name) / num_steps),
            share=percent(getattr(split, name) / total, digits=1),
            width=100 * getattr(split, name) / total,
        )
        for name, style in _TIME_PARTS
    ]
    beside = TimeRow(
        label="solver, beside generation",
        style="time-solver",
        seconds=duration(split.solver / num_steps),
        share="",
        width=0.0,
    )
    return [*rows, beside]
