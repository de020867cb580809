"""Bars and intervals as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from cast_ray.runs.report.line_chart import Scale, axes, count_scale, value_scale
from cast_ray.runs.report.svg import chart, join, path, tag
from cast_ray.runs.report.wording import percent
from cast_ray.statistics import Success

_MOST_TITLES = 120
_FINE = 5.0  # narrower bars have no room for an edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One layer of stacked bars."""

    label: str
    style: str
    """CSS class of its fill."""
    values: tuple[float, ...]
    """One per bar, >= 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where the bars are, in pixels."""

    numbers: tuple[int, ...]
    x: Scale
    y: Scale
    bar_width: float
    write: Callable[[float], str]


def stacked_bars(
    numbers: Sequence[int],
    parts: Sequence[Part],
    *,
    title: str,
    write: Callable[[float], str],
    overlay: Part | None = None,
    size: tuple[int, int] = (1020, 240),
) -> Markup:
    """Return one stacked bar per number.

    Args:
        numbers: x of the bars, ascending.
        parts: layers, the lowest first.
        title: for screen readers.
        write: formats a value.
        overlay: drawn as a slim bar inside each bar, from zero; not part of the stack.
        size: width and height in pixels.
    """
    sums = [sum(values) for values in zip(*(part.values for part in parts), strict=True)]
    frame = _frame(numbers, sums, write=write, size=size)
    layers = [0.0] * len(numbers)
    drawn: list[Markup] = []
    for part in parts:
        drawn.append(_layer(part, layers, frame))
        layers = [base + value for base, value in zip(layers, part.values, strict=True)]
    if overlay:
        slim = replace(frame, bar_width=frame.bar_width * 0.22)
        drawn.append(_layer(overlay, [0.0] * len(numbers), slim))
    return chart(
        axes(frame.x, frame.y, x_name="step", write=write),
        join(drawn),
        title=title,
        size=size,
        class_="chart" if frame.bar_width > _FINE else "chart fine",
    )


def _frame(
    numbers: Sequence[int],
    sums: Sequence[float],
    *,
    write: Callable[[float], str],
    size: tuple[int, int],
) -> _Frame:
    width, height = size
    y = value_scale(sums, start=height - 34, end=10, from_zero=True)
    left = 16 + 6.7 * max(len(write(tick)) for tick in y.ticks)
    # There is always room for ten bars: a single one must not fill the chart.
    reach = max(numbers[-1] + 0.5, numbers[0] + 9.5)
    x = count_scale([numbers[0] - 0.5, reach], start=left, end=width - 6, num_ticks=14)
    one = (x.end - x.start) / (x.high - x.low)
    return _Frame(
        numbers=tuple(numbers),
        x=x,
        y=y,
        bar_width=min(44.0, one * (0.72 if one > 4 else 1.0)),
        write=write,
    )


def _layer(part: Part, bases: Sequence[float], frame: _Frame) -> Markup:
    rects = []
    for number, base, value in zip(frame.numbers, bases, part.values, strict=True):
        if value <= 0:
            continue
        hint = tag("title", f"step {number}, {part.label}: {frame.write(value)}")
        top, bottom = frame.y(base + value), frame.y(base)
        rects.append(
            tag(
                "rect",
                hint if len(bases) <= _MOST_TITLES else "",
                x=frame.x(number) - frame.bar_width / 2,
                y=top,
                width=frame.bar_width,
                height=max(bottom - top, 0.6),
            )
        )
    return tag("g", join(rects), class_=f"part {part.style}")


def interval_chart(rows: Sequence[tuple[str, str, Success]]) -> Markup:
    """Return success rates with their intervals on one scale from 0 to 100%.

    Args:
        rows: name, style (``a`` or ``b``) and rate, from top to bottom.
    """
    width, row_height = 480, 48
    bottom = 14 + row_height * len(rows)
    x = value_scale([0.0, 1.0], start=70, end=width - 24, from_zero=True, num_ticks=5)
    parts: list[Markup] = []
    for tick in x.ticks:
        parts += [
            tag("path", class_="rule", d=path([(x(tick), 6), (x(tick), bottom)])),
            tag("text", percent(tick), class_="tick middle", x=x(tick), y=bottom + 18),
        ]
    for index, (name, style, rate) in enumerate(rows):
        parts.append(_interval(name, style, rate, x, 14 + row_height * (index + 0.5)))
    said = "; ".join(
        f"{name} {percent(rate.success, digits=1)}, 95% interval "
        f"{percent(rate.low, digits=1)} to {percent(rate.high, digits=1)}"
        for name, _, rate in rows
    )
    return chart(
        join(parts),
        title=f"Success on held-out boards: {said}",
        size=(width, bottom + 28),
        class_="chart interval",
    )


def _interval(name: str, style: str, rate: Success, x: Scale, y: float) -> Markup:
    low, middle, high = x(rate.low), x(rate.success), x(rate.high)
    ends = "".join(path([(end, y - 7), (end, y + 7)]) for end in (low, high))
    return tag(
        "g",
        tag("text", name, class_=f"name style-{style}", x=56, y=y + 4, text_anchor="end"),
        tag("path", class_="whisker", d=path([(low, y), (high, y)]) + ends),
        tag("circle", class_="dot", cx=middle, cy=y, r=7),
        tag("text", percent(rate.success, digits=1), class_="figure middle", x=middle, y=y - 13),
        class_=f"style-{style}",
    )
