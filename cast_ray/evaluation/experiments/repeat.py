"""``cast-ray repeat``: trains one arm of a recorded comparison again and compares the results."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.experiments.compare import RUNS, require_arm
from cast_ray.evaluation.experiments.sweep import run_sweep
from cast_ray.evaluation.experiments.sweep_plan import SHARED, SweepPlan, plan_sweep
from cast_ray.parquet import read_frame
from cast_ray.runs.run_directory import RunDirectory

LEVEL = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A new run and the recorded ones."""

    arm: str
    seed: int
    after: float
    """Share of solved attempts at held-out boards after training."""
    seeds: tuple[int, ...]
    """Seeds of the recorded runs."""
    low: float
    high: float
    """``low`` to ``high``: where another run of the same kind lies with probability ``LEVEL``."""

    @property
    def is_inside(self) -> bool:
        """Whether the new run lies in the prediction interval."""
        return self.low <= self.after <= self.high


def plan_repetition(evidence: Path, *, arm: str, seed: int) -> SweepPlan:
    """Return the plan of one run: an arm's recorded values, from the same start model.

    Args:
        evidence: a folder that ``cast-ray compare`` wrote.
        arm: its name there.
        seed: of the new run; the start model keeps its own seed.

    Raises:
        RunDirectoryError: the folder holds no comparison.
        ConfigError: it has no such arm, its runs differ in more than the seed, or one of them has
            this seed.
    """
    runs = _recorded(evidence, arm)
    if seed in runs["seed"]:
        raise ConfigError(f"seed {seed} is recorded already: give another --seed")
    values = shlex.split(_only(runs["values"]))
    fixed = [value for value in values if value.startswith(SHARED)]
    own = [value for value in values if value not in fixed]
    return plan_sweep(None, fixed, arms={arm: [*own, f"seed={seed}"]})


def next_seed(evidence: Path, *, arm: str) -> int:
    """Return the first seed after the recorded ones of an arm.

    Raises:
        RunDirectoryError: the folder holds no comparison.
        ConfigError: it has no such arm.
    """
    return 1 + max(_recorded(evidence, arm)["seed"].to_list())


def repeat(evidence: Path, *, arm: str, seed: int, out: Path) -> Repetition:
    """Train one arm again with another seed, and compare it with the recorded runs.

    Args:
        evidence: a folder that ``cast-ray compare`` wrote.
        arm: its name there.
        seed: of the new run.
        out: folder of the new run, a sweep of one; an interrupted one is resumed.

    Raises:
        RunDirectoryError: the folder holds no comparison.
        ConfigError: as ``plan_repetition``; or there are fewer than two recorded runs.
        EnvironmentSetupError: the run failed.
    """
    plan, runs = plan_repetition(evidence, arm=arm, seed=seed), _recorded(evidence, arm)
    low, high = prediction_interval(runs["after"].to_numpy())
    run_sweep(plan, file=None, out=out, at_once=1)
    summary = RunDirectory(out / "trials" / plan.trials[0].name).read_summary()
    return Repetition(
        arm=arm,
        seed=seed,
        after=summary["after"]["success"],
        seeds=tuple(runs["seed"].to_list()),
        low=max(0.0, low),
        high=min(1.0, high),
    )


def prediction_interval(figures: np.ndarray, *, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval that holds another figure with this probability, by Student's t.

    Args:
        figures: ``[n]`` independent samples of the same normal distribution.
        level: the probability.

    Raises:
        ConfigError: there are fewer than two.
    """
    n = len(figures)
    if n < 2:
        raise ConfigError(
            "one recorded run has no spread to compare with: record two seeds or more"
        )
    reach = stats.t.ppf((1 + level) / 2, n - 1) * figures.std(ddof=1) * np.sqrt(1 + 1 / n)
    return float(figures.mean() - reach), float(figures.mean() + reach)


def _recorded(evidence: Path, arm: str) -> pl.DataFrame:
    file = evidence / RUNS
    if not file.is_file():
        raise RunDirectoryError(
            f"{evidence} holds no {RUNS}: give a folder that cast-ray compare wrote"
        )
    runs = read_frame(file)
    own = runs.filter(pl.col("arm") == arm)
    require_arm(arm, runs["arm"].unique(maintain_order=True))
    return own.sort("seed")


def _only(values: pl.Series) -> str:
    if values.n_unique() > 1:
        raise ConfigError("the arm's runs differ in more than the seed, so it cannot be repeated")
    return str(values[0])
