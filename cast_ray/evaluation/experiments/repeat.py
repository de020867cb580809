"""One arm of a recorded comparison, run once more: does it come out as recorded?"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.experiments.compare import RUNS
from cast_ray.evaluation.experiments.sweep import run_sweep
from cast_ray.evaluation.experiments.sweep_plan import SHARED, SweepPlan, plan_sweep
from cast_ray.runs.run_directory import RunDirectory

LEVEL = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A new run beside those that are recorded."""

    arm: str
    seed: int
    after: float
    """Share of the attempts at held-out boards that solved them, after training."""
    seeds: tuple[int, ...]
    """Of the recorded runs."""
    low: float
    high: float
    """Where a further run of the same kind lies with probability ``LEVEL``."""

    @property
    def is_inside(self) -> bool:
        """Whether the new run is what the recorded ones let one expect."""
        return self.low <= self.after <= self.high


def plan_repetition(evidence: Path, *, arm: str, seed: int) -> SweepPlan:
    """Return the plan of one run: an arm's recorded values, from the same start model.

    Args:
        evidence: a folder that ``cast-ray compare`` wrote.
        arm: its name there.
        seed: of the new run; the start model keeps the seed that it had.

    Raises:
        RunDirectoryError: the folder holds no comparison.
        ConfigError: it has no such arm, its runs differ in more than the seed, or the seed is one
            of theirs.
    """
    runs = _recorded(evidence, arm)
    if seed in runs["seed"]:
        raise ConfigError(f"seed {seed} is one of the recorded: give another --seed")
    values = shlex.split(_only(runs["values"]))
    fixed = [value for value in values if value.startswith(SHARED)]
    own = [value for value in values if value not in fixed]
    return plan_sweep(None, fixed, arms={arm: [*own, f"seed={seed}"]})


def next_seed(evidence: Path, *, arm: str) -> int:
    """Return the first seed after all that are recorded of an arm.

    Raises:
        RunDirectoryError: the folder holds no comparison.
        ConfigError: it has no such arm.
    """
    return 1 + max(_recorded(evidence, arm)["seed"].to_list())


def repeat(evidence: Path, *, arm: str, seed: int, out: Path) -> Repetition:
    """Train one arm again with another seed and hold it beside what is recorded.

    Args:
        evidence: a folder that ``cast-ray compare`` wrote.
        arm: its name there.
        seed: of the new run.
        out: the new run's folder (a sweep of one); begun before, it is gone on with.

    Raises:
        RunDirectoryError: the folder holds no comparison.
        ConfigError: as ``plan_repetition``; or there are fewer than two recorded runs.
        EnvironmentSetupError: the run failed.
    """
    plan, runs = plan_repetition(evidence, arm=arm, seed=seed), _recorded(evidence, arm)
    low, high = prediction_interval(runs["after"].to_numpy())
    run_sweep(plan, file=None, out=out, at_once=1)
    run = RunDirectory(out / "trials" / plan.trials[0].name)
    summary = json.loads(run.summary.read_text())
    return Repetition(
        arm=arm,
        seed=seed,
        after=summary["after"]["success"],
        seeds=tuple(runs["seed"].to_list()),
        low=max(0.0, low),
        high=min(1.0, high),
    )


def prediction_interval(figures: np.ndarray, *, level: float = LEVEL) -> tuple[float, float]:
    """Return where a further figure lies with this probability, by Student's t.

    Args:
        figures: ``[n]`` independent, normal, of the same mean and spread as the further one.
        level: the probability.

    Raises:
        ConfigError: there are fewer than two.
    """
    n = len(figures)
    if n < 2:
        raise ConfigError("one recorded run says nothing of its spread: record two seeds or more")
    reach = stats.t.ppf((1 + level) / 2, n - 1) * figures.std(ddof=1) * np.sqrt(1 + 1 / n)
    return float(figures.mean() - reach), float(figures.mean() + reach)


def _recorded(evidence: Path, arm: str) -> pl.DataFrame:
    file = evidence / RUNS
    if not file.is_file():
        raise RunDirectoryError(f"{evidence} holds no {RUNS}: give what cast-ray compare wrote")
    runs = pl.read_parquet(file)
    own = runs.filter(pl.col("arm") == arm)
    if own.is_empty():
        known = ", ".join(runs["arm"].unique(maintain_order=True))
        raise ConfigError(f"no arm is called {arm!r} in {file}; there are {known}")
    return own.sort("seed")


def _only(values: pl.Series) -> str:
    if values.n_unique() > 1:
        raise ConfigError("the arm's runs differ in more than the seed: they are no repetitions")
    return str(values[0])
