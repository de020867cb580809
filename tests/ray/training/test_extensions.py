"""Runs with functions and environments of the user's: they train, and they replay."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from cast_ray.config.load import load_config
from cast_ray.runs.run_directory import RunDirectory
from tests.algorithms.test_functions import CISPO, EXTENSIONS, RLOO, SHORT
from tests.support import installed
from tests.support.session import Session

SMALL = """
steps=2 warm_start.steps=40 warm_start.careless_steps=5 rollout.puzzles_per_step=4
rollout.group_size=4 rollout.dynamic_sampling=1 evaluation.every=0 puzzles.num_held_out=8
evaluation.held_out_attempts=1
"""
EVAL = ("--limit", "4", "--attempts", "1", "--out")


def cast_ray(*arguments: str) -> str:
    command = [sys.executable, "-m", "cast_ray.cli", *arguments]
    # A Ray of the test session must not be joined.
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_run_with_functions_of_the_users_trains_and_replays_without_a_difference(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    functions = [
        f"reward.function={SHORT}",
        f"advantage.function={RLOO}",
        f"objective.loss={CISPO}",
    ]
    cast_ray("train", f"run_dir={run}", *functions, *SMALL.split())
    stored = load_config(run / "config.yaml", []).functions
    assert [len(name.rpartition("@")[2]) for name in stored.values()] == [16, 16, 16]
    assert_replays(run)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("guess_number.py:GuessNumber", ["oracle=turn_reward"]),
        ("secretary.py:Secretary", ["oracle=none", "algorithm=grpo"]),
    ],
)
def test_environment_of_the_users_trains_and_replays_without_a_difference(
    tmp_path: Path, name: str, values: list[str]
) -> None:
    if "secretary" in name:
        pytest.importorskip("textarena")
    run = tmp_path / "run"
    cast_ray("train", f"run_dir={run}", f"game={EXTENSIONS / name}", *values, *SMALL.split())
    assert_replays(run)
    table = pl.concat([pl.read_parquet(file) for file in RunDirectory(run).trajectory_files()])
    credit = table["solver_advantages"].explode().fill_nan(None)
    if "oracle=none" in values:
        assert credit.drop_nulls().abs().sum() == 0
    else:
        assert credit.std() > 0
        # What the turns earned is what the episode earned.
        sums = [-costs[-1] for costs in table["cost_estimates"].to_list()]
        assert sums == pytest.approx(table["reward"].to_list(), abs=1e-6)
    assert name.split(":")[1] in (run / "report.html").read_text()
    said = cast_ray(
        "eval",
        "--model",
        str(run),
        "--games",
        str(EXTENSIONS / name),
        *EVAL,
        str(tmp_path / "scores"),
    )
    assert name.split(":")[1] in said


@pytest.mark.parametrize("kind", ["game", "environment"])
def test_new_package_trains_by_the_command_that_is_printed_and_replays(
    tmp_path: Path, kind: str
) -> None:
    site, project = tmp_path / "site", tmp_path / "treasure_hunt"
    session = Session(tmp_path, site, project)
    said = session.run("cast-ray", "new", kind, "treasure_hunt")
    installed.install(project, site)
    (train,) = re.findall(r"cast-ray train .*", said)
    session.run(*train.split(), "run_dir=run")
    replayed = session.run("cast-ray", "replay", "run", "--updates")
    assert "No difference" in replayed and "no byte differs" in replayed
    table = pl.concat(
        [pl.read_parquet(file) for file in RunDirectory(tmp_path / "run").trajectory_files()]
    )
    assert table["solver_advantages"].explode().std() > 0


def assert_replays(run: Path) -> None:
    said = cast_ray("replay", str(run), "--updates")
    assert "No difference" in said
    assert "no byte differs" in said
