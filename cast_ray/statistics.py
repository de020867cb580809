"""Estimates from samples with 95% intervals, and the one place that resamples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

NUM_DRAWS = 2000
"""Bootstrap samples, where nothing else is said."""
_PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95% interval."""

    value: float
    low: float
    high: float
    n: int
    """What the interval is over, e.g. puzzles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """A success rate with its 95% bootstrap interval over puzzles, as ``summary.json`` has it."""

    success: float
    low: float
    high: float
    n: int
    """Attempts."""


def bootstrap(
    statistic: Callable[..., np.ndarray],
    *sizes: int,
    seed: int,
    num_draws: int = NUM_DRAWS,
    method: Literal["linear", "nearest"] = "linear",
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of a statistic's 95% percentile bootstrap interval.

    Args:
        statistic: takes one array ``[draws, size]`` of indices for each of ``sizes`` and returns
            ``[draws, ...]`` values; draws for which it is not defined may be left out.
        *sizes: of the populations, each drawn from independently and with replacement.
        seed: of the draws.
        num_draws: bootstrap samples.
        method: of ``numpy.percentile``; ``nearest`` where values may be infinite.
    """
    rng = np.random.default_rng(seed)
    values = statistic(*(rng.integers(0, size, (num_draws, size)) for size in sizes))
    low, high = np.percentile(values, _PERCENTILES, axis=0, method=method)
    return low, high


def mean_estimate(values: np.ndarray, *, seed: int, num_draws: int = NUM_DRAWS) -> Estimate:
    """Return the mean of ``[n]`` independent values."""
    low, high = bootstrap(
        lambda rows: values[rows].mean(axis=1), len(values), seed=seed, num_draws=num_draws
    )
    return Estimate(value=float(values.mean()), low=float(low), high=float(high), n=len(values))


def t_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of independent values, NaN left out, with its 95% t-interval.

    The interval is NaN for one value, and everything is for none.
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    mean = float(known.mean()) if n else math.nan
    half = math.nan
    if n > 1:
        from scipy.special import stdtrit  # here: it would slow every command's start

        half = float(stdtrit(n - 1, 0.975) * known.std(ddof=1) / math.sqrt(n))
    return Estimate(value=mean, low=mean - half, high=mean + half, n=n)


def success_rate(puzzle_ids: Sequence[str], rewards: Sequence[float], *, seed: int) -> Success:
    """Return the mean reward; attempts at one puzzle are resampled together."""
    places: dict[str, int] = {}
    place = np.array([places.setdefault(puzzle, len(places)) for puzzle in puzzle_ids], int)
    solved, attempts = np.bincount(place, weights=rewards), np.bincount(place)
    low, high = bootstrap(
        lambda rows: solved[rows].sum(axis=1) / attempts[rows].sum(axis=1), len(places), seed=seed
    )
    return Success(
        success=float(solved.sum() / attempts.sum()),
        low=float(low),
        high=float(high),
        n=len(place),
    )
