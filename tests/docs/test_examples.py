"""The examples run as they stand; those that need engines: tests/ray/training/test_algorithm.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import cast_ray
from solver_actors.oracle import Oracle
from tests.support.browsed_run import write_run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_one_step_shows_every_stage_and_moves_the_policy_as_told(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "one_step.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    stages = re.findall(r"── (\d)\. (\w+)", done.stdout)
    assert stages == list(
        zip("12345", ("Boards", "Policy", "Episodes", "Credit", "Update"), strict=True)
    )
    assert "shift: " in done.stdout
    rose, fell = map(float, re.findall(r"(?:above|below) 0: ([+-][\d.]+|nan)", done.stdout))
    assert rose > 0
    assert not fell > 0  # nan: no turn of this group did harm


def test_horizon_trains_every_arm_from_the_same_start() -> None:
    command = [sys.executable, str(EXAMPLES / "horizon.py"), "--horizons", "8"]
    command += ["--seeds", "2", "--steps", "4", "--lr", "8e-4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    title, _, *arms = done.stdout.strip().splitlines()
    assert title.startswith("8 turns, N 4 to 6, 2 seeds, learning rate 0.0008")
    assert float(re.search(r"before: ([\d.]+)%", title)[1]) >= 3  # type: ignore[index]
    first = {line[:24].strip(): line[24:].split()[0] for line in arms}
    assert list(first) == [
        "DAPO", "CAST", "whole trajectories", "shuffled", "CAST, waiting costs 1",
    ]  # fmt: skip
    assert len(set(first.values())) == 1


def outputs(name: str) -> list[str]:
    """Run a notebook and return what each of its cells shows."""
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "is stored with outputs"
    NotebookClient(notebook, timeout=300).execute()
    return ["".join(map(text_of, cell.outputs)) for cell in cells if cell.outputs]


def text_of(output: nbformat.NotebookNode) -> str:
    return output.text if output.output_type == "stream" else output.data["text/plain"]


def test_a_notebook_solves_plays_and_credits_a_game() -> None:
    board, solution, played, credit, mines = outputs("solve_and_play.ipynb")
    assert "Player: (3, 3)" in board
    assert "cost=6.0" in solution
    assert "'Left': inf" in solution  # that push can never be undone
    assert played.endswith("solved\n")
    drops = re.findall(r"(-?\d\.0) +┆ (-?\d\.0) +│", credit)
    assert drops == [("-1.0", "-1.0")] + 7 * [("1.0", "1.0")]
    assert "7 reveals" in mines


def test_a_notebook_analyses_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", Oracle(max_bytes=1 << 26))
    monkeypatch.setenv("CAST_RAY_RUN", str(run.path))
    config, _, turns, kinds, lost, picture = outputs("analyse_a_run.ipynb")
    assert config.startswith("('sokoban', 'cast'")
    assert turns.startswith("shape: (17, 8)")  # episodes of 2, 6, 6 and 3 turns
    assert kinds.startswith("shape: (5, 4)")
    assert lost.startswith("0 turns")
    assert picture.startswith("<Figure")


def test_python_on_the_pages_is_that_of_the_example() -> None:
    example = (EXAMPLES / "train_with_python.py").read_text()
    for page in ("README.md", "docs/rllib.md"):
        [shown] = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
        configured, _, _ = shown.partition("\nwith ")
        names: dict[str, Any] = {}
        exec(configured, names)
        assert names["config"].validate().advantage.alpha == 0.3
        assert set(shown.splitlines()[:6]) <= set(example.splitlines())


def test_the_builder_has_the_arguments_that_the_page_for_users_of_rllib_names() -> None:
    _, arguments = (ROOT / "docs/rllib.md").read_text().split("## Arguments with other names")
    for method, names in re.findall(r"`\.(\w+)\(([^)]*)\)`", arguments):
        for name in re.findall(r"(\w+)=", names):
            getattr(cast_ray.AlgorithmConfig(), method)(**{name: 1})  # refuses an unknown one


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    shown = re.findall(r"^::: cast_ray\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M)
    assert sorted(shown) == sorted(cast_ray.__all__)
