"""From values to pixels: where the ticks are and where a value lies."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

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
    """Return a scale that begins and ends at round values around all finite ones."""
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
    """Return a scale for whole numbers (steps, turns) that ends where they end."""
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
