"""The chart of where the seconds went, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cast_ray.metrics import StepMetrics
from cast_ray.report.bars import Part, stacked_bars
from cast_ray.report.phrasing import duration, percent
from cast_ray.report.time_split import TimeSplit, time_split, was_watched

_TIME_PARTS = (
    ("generation", "time-generation"),
    ("learner", "time-learner"),
    ("sync", "time-sync"),
    ("checkpoint", "time-checkpoint"),
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


def time_chart(steps: Sequence[StepMetrics], *, is_asynchronous: bool) -> Markup:
    """Return the wall time of each step, by what it was spent on; replayed ones are left out."""
    watched = [row for row in steps if was_watched(row)]
    splits = [time_split([row], is_asynchronous=is_asynchronous) for row in watched]
    return stacked_bars(
        [row.step for row in watched],
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
    """Return the table of time: the parts of a step, then what ran beside them.

    Args:
        split: of all steps together.
        num_steps: that are in it, at least one.
    """
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
    beside = [("solver, beside generation", "time-solver", split.solver)]
    if split.environment:
        beside += [("environments, summed over episodes", "time-beside", split.environment)]
    if split.generation_beside:
        beside += [("generation, beside the learner", "time-beside", split.generation_beside)]
    if split.validation_beside:
        beside += [("validation, beside the next steps", "time-beside", split.validation_beside)]
    return [
        *rows,
        *(
            TimeRow(
                label=label,
                style=style,
                seconds=duration(seconds / num_steps),
                share="",
                width=0.0,
            )
            for label, style, seconds in beside
        ),
    ]
