"""Paired comparison of two models on the same puzzles. Letter: ``n`` puzzles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.scores import check_runs, puzzle_key
from cast_ray.evaluation.tasks import GameTier
from cast_ray.statistics import mean_estimate

_RESAMPLES = 9999
"""Sign patterns drawn where all of them would be more; bootstrap samples too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """Model a against model b on one game and tier."""

    difference: float
    """Mean over puzzles of a's success minus b's, in [-1, 1]."""
    low: float
    """Low end of its 95% bootstrap interval over puzzles."""
    high: float
    p_value: float
    """Two-sided, of the paired permutation test; under its null hypothesis the two results can
    be swapped at every puzzle."""
    num_puzzles: int
    only_a: int
    """Puzzles that a solved in some attempt and b in none."""
    only_b: int
    both: int
    neither: int


def paired_test(a: Sequence[Attempt], b: Sequence[Attempt], *, seed: int) -> PairedTest:
    """Compare two models by their success at each puzzle, the mean over attempts and runs.

    Args:
        a: attempts of one model at the puzzles of one game and tier.
        b: attempts of the other at the same puzzles; the number of attempts may differ.
        seed: for the resampling.

    Raises:
        ConfigError: they are of several games or tiers, or not at the same puzzles.
    """
    check_runs(a)
    check_runs(b)
    _check_pairs(a, b)
    played = [Counter(map(puzzle_key, attempts)) for attempts in (a, b)]
    solved = [Counter(puzzle_key(one) for one in each if one.is_success) for each in (a, b)]
    puzzles = sorted(played[0])
    # Integers, so that sums are exact, and patterns that tie with the observed one do tie.
    unit = math.lcm(*played[0].values(), *played[1].values())
    scaled = np.array(
        [
            solved[0][puzzle] * (unit // played[0][puzzle])
            - solved[1][puzzle] * (unit // played[1][puzzle])
            for puzzle in puzzles
        ]
    )
    estimate = mean_estimate(scaled / unit, seed=seed, num_draws=_RESAMPLES)
    outcomes = [(solved[0][puzzle] > 0, solved[1][puzzle] > 0) for puzzle in puzzles]
    return PairedTest(
        difference=float(scaled.sum() / (unit * len(puzzles))),
        low=estimate.low,
        high=estimate.high,
        p_value=sign_flip_p_value(scaled, seed=seed),
        num_puzzles=len(puzzles),
        only_a=outcomes.count((True, False)),
        only_b=outcomes.count((False, True)),
        both=outcomes.count((True, True)),
        neither=outcomes.count((False, False)),
    )


def sign_flip_p_value(differences: np.ndarray, *, seed: int) -> float:
    """Return the two-sided p-value of a mean difference if every sign were random.

    Exact up to 13 differences that are not 0, else from 9,999 random patterns.

    Args:
        differences: ``[n]`` integers.
        seed: for the patterns.
    """
    moved = differences[differences != 0].astype(np.float64)  # the sign of 0 has no effect
    if len(moved) < 2:  # scipy needs two; with one, both signs are equally extreme
        return 1.0
    # Any: scipy has no types.
    result: Any = stats.permutation_test(
        (moved,),
        np.sum,
        permutation_type="samples",
        n_resamples=_RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down rule, in the given order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _check_pairs(a: Sequence[Attempt], b: Sequence[Attempt]) -> None:
    names = f"{a[0].model!r} and {b[0].model!r}"
    tiers = sorted({str(GameTier(game=attempt.game, tier=attempt.tier)) for attempt in (*a, *b)})
    if len(tiers) > 1:
        raise ConfigError(f"compare {names} on one game and tier at a time, got {', '.join(tiers)}")
    missing = {puzzle_key(attempt) for attempt in a} ^ {puzzle_key(attempt) for attempt in b}
    if missing:
        raise ConfigError(
            f"{names} were not evaluated on the same puzzles of {tiers[0]}: {len(missing)} were "
            f"played by only one of them, e.g. {min(missing)[2]}; evaluate both together"
        )
