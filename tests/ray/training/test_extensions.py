"""A run with a reward, an advantage and a loss of the user's: it trains, and it replays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cast_ray.config.load import load_config
from tests.algorithms.test_functions import CISPO, RLOO, SHORT

SMALL = """
steps=2 warm_start.steps=40 warm_start.careless_steps=5 rollout.puzzles_per_step=4
rollout.group_size=4 rollout.dynamic_sampling=1 evaluation.every=0 puzzles.num_held_out=8
evaluation.held_out_attempts=1
"""


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
    said = cast_ray("replay", str(run), "--updates")
    assert "No difference" in said
    assert "no byte differs" in said
