"""A chart with its words, and the charts of one figure over the steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cast_ray.metrics import StepMetrics
from cast_ray.report.line_chart import Line, line_chart
from cast_ray.report.phrasing import written

SMALL = (330, 180)
"""Width and height of a small chart, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart with its words."""

    title: str
    latest: str
    """The newest value in words; may be empty."""
    caption: str
    chart: Markup


def small_figure(
    steps: Sequence[StepMetrics],
    title: str,
    value: Callable[[StepMetrics], float],
    write: Callable[[float], str],
    caption: str,
) -> Figure:
    """Return the chart of one figure; a NaN is left out, and no newest value in words."""
    return Figure(
        title=title,
        latest=written(value(steps[-1]), write),
        caption=caption,
        chart=line_chart(
            [step_line(title, "a", steps, value)],
            title=f"{title} over steps",
            x_name="step",
            write=write,
            size=SMALL,
        ),
    )


def step_line(
    label: str, style: str, steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]
) -> Line:
    """Return one figure of each step as a line."""
    return Line(label=label, style=style, points=tuple((row.step, value(row)) for row in steps))


def is_known(steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]) -> bool:
    """Return whether a figure was measured at any step."""
    return not all(math.isnan(value(row)) for row in steps)


def plain(value: float) -> str:
    """Return a number in three digits."""
    return f"{value:.3g}".replace("-", "−")
