"""The arms of an experiment: validation curves, and the steps that one needs for another's best.

An arm is a setting whose runs differ only in their seeds. Letters: ``S`` seeds of an arm, ``T``
validated steps, ``B`` validation boards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cast_ray.errors import ConfigError
from cast_ray.statistics import Estimate, bootstrap, t_interval

CURVES = pl.Schema(
    {
        "arm": pl.String,
        "seed": pl.Int32,
        "step": pl.Int32,
        "board": pl.Int32,
        "attempts": pl.Int32,
        "solved": pl.Int32,
    }
)
"""``board``: number of the validation board, equal in all runs."""
TIERS = pl.Schema(
    {
        "arm": pl.String,
        "run": pl.Int32,
        "game": pl.String,
        "tier": pl.String,
        "board": pl.Int32,
        "attempts": pl.Int32,
        "solved": pl.Int32,
    }
)
"""Results of trained models on complete tiers; ``board``: number of the board in its tier."""
TRAINING = pl.Schema(
    {
        "arm": pl.String,
        "seed": pl.Int32,
        "step": pl.Int32,
        "success": pl.Float64,
        "lost_fraction": pl.Float64,
        "ineffective_fraction": pl.Float64,
        "invalid_fraction": pl.Float64,
        "harmful_fraction": pl.Float64,
        "entropy": pl.Float64,
    }
)
"""Columns of ``metrics.parquet`` on the training episodes."""
SMOOTHING = 0.6
"""Weight of the past in the exponential moving average of a curve."""
WAYPOINTS = (0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares of the baseline's rise from its start to its best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The validation of one arm's runs."""

    name: str
    seeds: tuple[int, ...]
    steps: np.ndarray
    """``[T]``, ascending; 0 is the start model."""
    solved: np.ndarray
    """``[S, T, B]`` share of the attempts at a board that solved it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of one arm on a tier."""

    arm: str
    game: str
    tier: str
    solved: Estimate
    """Mean over runs and boards of the share of attempts that solved one: Avg@k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The steps that one arm needs for another's best; infinite = not reached."""

    runner: str
    baseline: str
    best: float
    """The largest value of the baseline's smoothed mean curve."""
    baseline_step: int
    """Its step."""
    runner_step: float
    """First validated step at which the runner's smoothed mean curve reaches it."""
    ratio: Estimate
    """``runner_step`` over ``baseline_step``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """The steps that an arm needs for parts of the baseline's rise; infinite = not reached."""

    arm: str
    baseline: str
    steps: tuple[float, ...]
    """First validated step at which the smoothed mean curve reaches each of ``WAYPOINTS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """By how much an arm's validation curve lies above another's, paired by seed."""

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    """Those of both arms; the others have no pair."""
    unpaired: tuple[int, ...]
    area: Estimate
    """Mean over seeds of the difference in area, with its 95% t-interval. An area is the mean
    success from the first to the last validated step."""


def arms_of(curves: pl.DataFrame) -> list[Arm]:
    """Return the arms of ``CURVES`` in their order of appearance.

    Raises:
        ConfigError: runs or arms were not validated on the same boards at the same steps.
    """
    names = curves["arm"].unique(maintain_order=True).to_list()
    arms = [_arm(name, curves.filter(pl.col("arm") == name)) for name in names]
    for arm in arms[1:]:
        same_steps = np.array_equal(arm.steps, arms[0].steps)
        if not same_steps or arm.solved.shape[2] != arms[0].solved.shape[2]:
            raise ConfigError(
                f"{arm.name} and {arms[0].name} were not validated on the same boards at the same "
                "steps: compare runs with the same steps, evaluation.every and puzzles"
            )
    return arms


def _arm(name: str, rows: pl.DataFrame) -> Arm:
    seeds, steps, boards = (
        rows[column].unique().sort().to_numpy() for column in ("seed", "step", "board")
    )
    if len(rows) != len(seeds) * len(steps) * len(boards):
        raise ConfigError(
            f"the runs of {name} were not all validated at the same steps: finish them, or leave "
            "out those that did not end"
        )
    shares = _shares(rows, "seed", "step", "board")
    return Arm(
        name=name,
        seeds=tuple(seeds.tolist()),
        steps=steps,
        solved=shares.reshape(len(seeds), len(steps), len(boards)),
    )


def _shares(rows: pl.DataFrame, *order: str) -> np.ndarray:
    """Return ``[len(rows)]`` shares of solved attempts, in the order of the given columns."""
    ordered = rows.sort(*order)
    return ordered["solved"].to_numpy() / ordered["attempts"].to_numpy()


def played_tiers(table: pl.DataFrame) -> list[Played]:
    """Return the results in ``TIERS`` by arm and tier, in their order of appearance."""
    found = []
    keys = ["arm", "game", "tier"]
    for (name, game, tier), rows in table.group_by(keys, maintain_order=True):
        runs = tuple(rows["run"].unique().sort().to_list())
        solved = _shares(rows, "run", "board").reshape(len(runs), 1, -1)
        arm = Arm(name=str(name), seeds=runs, steps=np.zeros(1), solved=solved)
        (estimate,) = band(arm)
        found.append(Played(arm=arm.name, game=str(game), tier=str(tier), solved=estimate))
    return found


def smoothed(curve: np.ndarray, *, weight: float = SMOOTHING) -> np.ndarray:
    """Return ``[..., T]`` exponential moving averages along the last axis."""
    means = np.array(curve, float)
    for t in range(1, means.shape[-1]):
        means[..., t] = weight * means[..., t - 1] + (1 - weight) * means[..., t]
    return means


def band(arm: Arm, *, seed: int = 0) -> list[Estimate]:
    """Return ``[T]`` mean success at each step, with its interval."""
    num_seeds, _, num_boards = arm.solved.shape
    low, high = bootstrap(
        lambda boards, seeds: _drawn(arm, seeds, boards), num_boards, num_seeds, seed=seed
    )
    mean = arm.solved.mean(axis=(0, 2))
    return [
        Estimate(value=float(m), low=float(a), high=float(b), n=num_boards)
        for m, a, b in zip(mean, low, high, strict=True)
    ]


def gap(arm: Arm, baseline: Arm) -> Gap:
    """Return the difference in the area under the validation curve, over the seeds of both.

    The bootstrap over three seeds covers 74%; the t-interval over pairs what it says.
    """
    both = tuple(sorted({*arm.seeds} & {*baseline.seeds}))
    areas = ([_area(one, one.seeds.index(seed)) for seed in both] for one in (arm, baseline))
    return Gap(
        arm=arm.name,
        baseline=baseline.name,
        seeds=both,
        unpaired=tuple(sorted({*arm.seeds} ^ {*baseline.seeds})),
        area=t_interval([mine - theirs for mine, theirs in zip(*areas, strict=True)]),
    )


def _area(arm: Arm, seed: int) -> float:
    curve, span = arm.solved[seed].mean(axis=1), arm.steps[-1] - arm.steps[0]
    return float(np.trapezoid(curve, arm.steps) / span) if span else float(curve[0])


def race(runner: Arm, baseline: Arm, *, seed: int = 0) -> Race:
    """Return how soon ``runner`` has the best of ``baseline``.

    The interval draws the seeds of each arm, and the boards of both together, with replacement.
    """

    def ratios(boards: np.ndarray, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        baselines = smoothed(_drawn(baseline, theirs, boards))
        pairs = zip(smoothed(_drawn(runner, ours, boards)), baselines, strict=True)
        return np.array([_ratio(runner.steps, *pair) for pair in pairs])

    num_boards = baseline.solved.shape[2]
    sizes = (num_boards, len(baseline.seeds), len(runner.seeds))
    low, high = bootstrap(ratios, *sizes, seed=seed, method="nearest")
    mine, best_curve = _mean_curve(runner), _mean_curve(baseline)
    peak = _peak(baseline.steps, best_curve)
    return Race(
        runner=runner.name,
        baseline=baseline.name,
        best=float(best_curve[peak]),
        baseline_step=int(baseline.steps[peak]),
        runner_step=_first_step(runner.steps, mine, best_curve[peak]),
        ratio=Estimate(
            value=_ratio(runner.steps, mine, best_curve),
            low=float(low),
            high=float(high),
            n=num_boards,
        ),
    )


def climbs(arms: Sequence[Arm], baseline: Arm) -> list[Climb]:
    """Return the steps that each arm needs for parts of the baseline's rise.

    A race depends on the top of the curves, where they are flat; this covers the rise as well.
    Empty if the baseline never rose above its start.
    """
    theirs = _mean_curve(baseline)
    start, best = theirs[0], theirs[_peak(baseline.steps, theirs)]
    if best <= start:
        return []
    # Not start + 1 * (best - start), which may differ from best by rounding.
    heights = [(1 - share) * start + share * best for share in WAYPOINTS]
    return [
        Climb(
            arm=arm.name,
            baseline=baseline.name,
            steps=tuple(_first_step(arm.steps, curve, height) for height in heights),
        )
        for arm, curve in zip(arms, map(_mean_curve, arms), strict=True)
    ]


def _mean_curve(arm: Arm) -> np.ndarray:
    """Return ``[T]`` the smoothed mean over seeds and boards."""
    return smoothed(arm.solved.mean(axis=(0, 2)))


def _ratio(steps: np.ndarray, runner: np.ndarray, baseline: np.ndarray) -> float:
    peak = _peak(steps, baseline)
    return _first_step(steps, runner, baseline[peak]) / float(steps[peak])


def _peak(steps: np.ndarray, curve: np.ndarray) -> int:
    """Return the index of a curve's maximum after the start, which is not trained."""
    trained = np.flatnonzero(steps > 0)
    return int(trained[curve[trained].argmax()])


def _first_step(steps: np.ndarray, curve: np.ndarray, value: float) -> float:
    reached = np.flatnonzero(curve >= value)
    return float(steps[reached[0]]) if len(reached) else math.inf


def _drawn(arm: Arm, seeds: np.ndarray, boards: np.ndarray) -> np.ndarray:
    """Return ``[draws, T]`` mean success of each resample of seeds and boards."""
    return np.stack(
        [
            arm.solved[some].mean(axis=0)[:, others].mean(axis=1)
            for some, others in zip(seeds, boards, strict=True)
        ]
    )
