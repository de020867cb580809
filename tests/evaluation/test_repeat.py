"""Running a recorded arm again: what is planned, what is expected of it, and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.experiments.repeat import (
    Repetition,
    next_seed,
    plan_repetition,
    prediction_interval,
)
from tests.support.odd_names import ODD_NAME

VALUES = "game=rush_hour steps=20 warm_start.careless_steps=40 'learner.betas=[0.9, 0.99]'"


def recorded(folder: Path, *, values: tuple[str, ...] = (VALUES, VALUES)) -> Path:
    rows = {"arm": ["CAST", "CAST", "DAPO"], "seed": [1, 0, 0]}
    after = {"values": [*values, f"{VALUES} algorithm=dapo"], "after": [0.8, 0.7, 0.6]}
    pl.DataFrame(rows | after).write_parquet(folder / "runs.parquet")
    return folder


def test_the_values_are_the_recorded_and_the_start_model_keeps_its_seed(tmp_path: Path) -> None:
    plan = plan_repetition(recorded(tmp_path), arm="DAPO", seed=5)
    (trial,) = plan.trials
    assert plan.fixed == ["game=rush_hour", "warm_start.careless_steps=40"]
    assert plan.base.seed == 0 and plan.base.warm_start.careless_steps == 40
    assert (trial.config.game, trial.config.steps, trial.config.seed) == ("rush_hour", 20, 5)
    assert trial.config.learner.betas == (0.9, 0.99)
    assert trial.config.advantage.alpha == 0


def test_a_given_start_model_is_that_of_the_new_run(tmp_path: Path) -> None:
    given = "policy.path=docs/start warm_start.steps=0"
    plan = plan_repetition(recorded(tmp_path, values=(given, given)), arm="CAST", seed=3)
    assert plan.fixed == given.split()
    assert not plan.needs_warm_start


def test_the_interval_holds_a_further_figure_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        low, high = prediction_interval(rng.normal(0.8, 0.02, 3), level=0.9)
        inside.append(low <= rng.normal(0.8, 0.02) <= high)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.015)


def test_inside_is_between_the_ends() -> None:
    found = [
        Repetition(arm="CAST", seed=3, after=after, seeds=(0, 1), low=0.7, high=0.8).is_inside
        for after in (0.69, 0.7, 0.8, 0.81)
    ]
    assert found == [False, True, True, False]


def test_the_next_seed_is_one_that_nobody_has_run(tmp_path: Path) -> None:
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    assert next_seed(recorded(folder), arm="CAST") == 2


def test_what_cannot_be_repeated_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"runs\.parquet.*cast-ray compare"):
        plan_repetition(tmp_path, arm="CAST", seed=3)
    recorded(tmp_path)
    with pytest.raises(ConfigError, match=r"'GRPO'.* CAST, DAPO"):
        plan_repetition(tmp_path, arm="GRPO", seed=3)
    with pytest.raises(ConfigError, match=r"seed 0 .*--seed"):
        plan_repetition(tmp_path, arm="CAST", seed=0)
    recorded(tmp_path, values=(VALUES, f"{VALUES} advantage.alpha=1"))
    with pytest.raises(ConfigError, match=r"runs differ.*seed"):
        plan_repetition(tmp_path, arm="CAST", seed=3)
    with pytest.raises(ConfigError, match="two seeds"):
        prediction_interval(np.array([0.5]))
