"""The examples that train run as they stand; the others: tests/docs/test_examples.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cast_ray

pytestmark = [pytest.mark.ray, pytest.mark.timeout(2400)]
EXAMPLES = Path(__file__).parents[3] / "examples"


def output(tmp_path: Path, name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    # Tune keeps its results in the home directory unless told otherwise.
    environment = os.environ | {"HOME": str(tmp_path), "COLUMNS": "120"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def table(shown: str) -> list[list[float]]:
    """Return alpha, learning rate, iterations and success of each trial."""
    rows = re.findall(r"^\d+ +([\d.e-]+) +([\d.e-]+) +(\d+) +([\d.e-]+)$", shown, re.MULTILINE)
    return [[float(cell) for cell in row] for row in rows]


def test_twelve_lines_train(tmp_path: Path) -> None:
    shown = output(tmp_path, "train_with_python.py")
    steps = re.findall(r"^(\d) ([\d.]+)$", shown, re.MULTILINE)
    assert [step for step, _ in steps] == ["1", "2", "3"]
    run = cast_ray.load_run(tmp_path / "runs/from-python")
    assert [f"{success:.6f}" for success in run.metrics["success"]] == [
        f"{float(success):.6f}" for _, success in steps
    ]
    saved = cast_ray.load_run(tmp_path / "runs/from-python-checkpoint")
    assert saved.directory.resume_point().step == 3


def test_asha_stops_what_lags_behind(tmp_path: Path) -> None:
    rows = table(output(tmp_path, "tune_alpha.py"))
    assert {(alpha, lr) for alpha, lr, _, _ in rows} == {
        (alpha, lr) for alpha in (0.1, 0.3, 1.0) for lr in (1e-4, 3e-4)
    }
    iterations = [iteration for _, _, iteration, _ in rows]
    assert set(iterations) == {2, 4}
    # Whoever was stopped was worse after two steps than somebody who went on.
    best = max(success for _, _, iteration, success in rows if iteration == 4)
    assert best > 0


def test_the_worse_of_a_population_goes_on_from_the_better(tmp_path: Path) -> None:
    rows = table(output(tmp_path, "tune_alpha.py", "pbt"))
    assert [iteration for _, _, iteration, _ in rows] == [4, 4]
    runs = sorted(path.parent for path in tmp_path.rglob("config.yaml"))
    copied = [run for run in runs if run.name == "run-2"]
    assert copied, "no trial was copied"
    # The copy has the steps of the better one, and its own after them.
    others = [run for run in runs if run.parent != copied[0].parent]
    first = "trajectories/step-00001.parquet"
    assert any((copied[0] / first).read_bytes() == (run / first).read_bytes() for run in others)
