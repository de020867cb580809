"""Line charts as inline SVG, with the scales and axes that map values to pixels.

Every line has its own colour, dash and marker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cast_ray.runs.report.svg import chart, join, path, tag

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear map of ``[low, high]`` onto ``[start, end]`` pixels."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def value_scale(
    values: Iterable[float], *, start: float, end: float, from_zero: bool, num_ticks: int = 4
) -> Scale:
    """Return a scale between round values that covers all finite ones."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        reach = abs(low) / 2 or 0.5
        low, high = (0.0, 1.0) if from_zero and low == 0 else (low - reach, high + reach)
    step = _round_step((high - low) / num_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Scale(low=ticks[0], high=ticks[-1], start=start, end=end, ticks=ticks)


def count_scale(values: Iterable[float], *, start: float, end: float, num_ticks: int = 6) -> Scale:
    """Return a scale for whole numbers (steps, turns) that covers their range exactly."""
    present = list(values) or [0.0]
    low, high = min(present), max(present)
    step = max(1.0, _round_step((high - low) / num_ticks))
    step = 5.0 if step == 2.5 else float(round(step))
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = tuple(number * step for number in range(first, last + 1))
    if low == high:
        low, high = low - 1, high + 1
    return Scale(low=low, high=high, start=start, end=end, ticks=ticks)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is at least ``least``."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


_MOST_MARKERS = 50
_INFINITE_Y = 14  # pixels, above every other value
_LABEL_HEIGHT = 15
_LETTER = 6.7  # mean width of a tick's letter
_NAME_LETTER = 7.8  # of a line's name, which is bold
_MARKERS = {
    "a": "M0-3.6A3.6 3.6 0 1 1 0 3.6A3.6 3.6 0 1 1 0-3.6z",
    "b": "M-3.3-3.3H3.3V3.3H-3.3z",
    "c": "M0-4.4L4.2 3.2H-4.2z",
    "d": "M0-4.6L4.6 0L0 4.6L-4.6 0z",
}
"""Circle, square, triangle, diamond, around the origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    label: str
    style: str
    """``a``, ``b``, ``c`` or ``d``: colour, dash and marker."""
    points: tuple[tuple[float, float], ...]
    """x and y, by ascending x; NaN is left out, inf is drawn above all other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where a chart's parts are, in pixels."""

    x: Scale
    y: Scale

    def at(self, point: tuple[float, float]) -> tuple[float, float]:
        value = _INFINITE_Y if math.isinf(point[1]) else self.y(point[1])
        return self.x(point[0]), value


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_name: str,
    write: Callable[[float], str],
    from_zero: bool = True,
    infinite: str = "∞",
    size: tuple[int, int] = (500, 230),
) -> Markup:
    """Return a chart of lines against whole numbers.

    Args:
        lines: those without a known value are left out.
        title: for screen readers.
        x_name: what the x axis counts.
        write: formats a y value.
        from_zero: whether the y axis includes zero.
        infinite: the word for inf on the y axis.
        size: width and height in pixels.
    """
    shown = [
        Line(label=line.label, style=line.style, points=_present(line.points)) for line in lines
    ]
    shown = [line for line in shown if line.points]
    if not shown:
        return tag("p", "No value is known.", class_="empty")
    word = infinite if any(math.isinf(y) for line in shown for _, y in line.points) else ""
    frame = _frame(shown, from_zero=from_zero, infinite=word, size=size, write=write)
    return chart(
        axes(frame.x, frame.y, x_name=x_name, write=write, infinite=word),
        join([_drawn(line, frame, x_name=x_name, write=write) for line in shown]),
        _labels(shown, frame) if len(shown) > 1 else "",
        title=title,
        size=size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart with its texts."""

    title: str
    beside: str = ""
    """Next to the title: the newest value, or the label of an equation in the paper."""
    caption: str
    chart: Markup


def line_figure(
    title: str,
    caption: str,
    lines: Sequence[Line],
    *,
    x_name: str,
    write: Callable[[float], str],
    beside: str = "",
    spoken: str = "",
    from_zero: bool = True,
    size: tuple[int, int] = (420, 220),
) -> Figure:
    """Return a line chart with its texts; ``spoken`` is its title for screen readers if it differs.

    Other arguments as in ``Figure`` and ``line_chart``.
    """
    drawn = line_chart(
        lines, title=spoken or title, x_name=x_name, write=write, from_zero=from_zero, size=size
    )
    return Figure(title=title, beside=beside, caption=caption, chart=drawn)


def _present(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    return tuple(point for point in points if not math.isnan(point[1]))


def _frame(
    lines: Sequence[Line],
    *,
    from_zero: bool,
    infinite: str,
    size: tuple[int, int],
    write: Callable[[float], str],
) -> _Frame:
    width, height = size
    values = [y for line in lines for _, y in line.points]
    top = 36 if infinite else 12
    y = value_scale(values, start=height - 34, end=top, from_zero=from_zero)
    label_width = max(len(line.label) for line in lines) * _NAME_LETTER if len(lines) > 1 else 0
    left = 16 + _LETTER * max(len(text) for text in (infinite, *map(write, y.ticks)))
    x = count_scale(
        [x for line in lines for x, _ in line.points],
        start=left,
        end=width - 12 - label_width - (8 if label_width else 0),
    )
    return _Frame(x=x, y=y)


def axes(
    x: Scale, y: Scale, *, x_name: str, write: Callable[[float], str], infinite: str = ""
) -> Markup:
    """Return both axes with a line per tick of y, and one for infinite values if they have a word.

    ``write`` formats a y value.
    """
    left, right, bottom = x.start, x.end, y.start
    parts: list[Markup] = []
    rows = [(y(tick), write(tick), tick == 0) for tick in y.ticks]
    rows += [(_INFINITE_Y, infinite, False)] if infinite else []
    for level, text, is_zero in rows:
        kind = "zero" if is_zero else "rule"
        parts += [
            tag("path", class_=kind, d=path([(left, level), (right, level)])),
            tag("text", text, class_="tick", x=left - 8, y=level + 4, text_anchor="end"),
        ]
    for tick in x.ticks:
        parts.append(tag("text", f"{tick:.0f}", class_="tick middle", x=x(tick), y=bottom + 17))
    name = tag("text", x_name, class_="tick middle", x=(left + right) / 2, y=bottom + 31)
    return join([*parts, name])


def _drawn(line: Line, frame: _Frame, *, x_name: str, write: Callable[[float], str]) -> Markup:
    places = [frame.at(point) for point in line.points]
    parts = [tag("path", class_="line", d=path(places))] if len(places) > 1 else []
    if len(places) <= _MOST_MARKERS:
        for (x, y), (number, value) in zip(places, line.points, strict=True):
            text = "∞" if math.isinf(value) else write(value)
            parts.append(
                tag(
                    "path",
                    tag("title", f"{line.label}, {x_name} {number:.0f}: {text}"),
                    class_="mark",
                    d=_MARKERS[line.style],
                    transform=f"translate({x:.1f} {y:.1f})",
                )
            )
    return tag("g", join(parts), class_=f"style-{line.style}")


def _labels(lines: Sequence[Line], frame: _Frame) -> Markup:
    """Return the lines' names at their right ends, moved apart so that they do not overlap."""
    wanted = sorted(
        ((frame.at(line.points[-1])[1], line) for line in lines), key=lambda pair: pair[0]
    )
    places: list[float] = []
    for y, _ in wanted:
        places.append(max(y, places[-1] + _LABEL_HEIGHT) if places else y)
    overshoot = places[-1] - (frame.y.start + 2)
    if overshoot > 0:
        lowest = frame.y.start + 2
        for index in range(len(places) - 1, -1, -1):
            places[index] = min(places[index], lowest)
            lowest = places[index] - _LABEL_HEIGHT
    x = frame.x.end + 10
    return join(
        [
            tag("text", line.label, class_=f"name style-{line.style}", x=x, y=place + 4)
            for place, (_, line) in zip(places, wanted, strict=True)
        ]
    )
