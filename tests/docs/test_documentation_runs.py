"""Blocks of the pages that take seconds are run as they stand; longer ones are run elsewhere.

What trains, serves or evaluates is run by tests/ray and tests/web with smaller values; that it
exists as written is tests/docs/test_documentation.py's to say.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.made_up_run import new_run, play, scored, scripted, write_step

DOCS = Path(__file__).parents[2] / "docs"
BOARD = "######\n#P_X_O\n######"


def block(page: str, holding: str, kind: str = "sh") -> str:
    """Return the one block of a page that holds some words."""
    found = re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)
    [text] = [text for text in found if holding in text]
    return text


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_games_and_solvers_of_the_quickstart(tmp_path: Path) -> None:
    run(["bash", "-e", "-c", block("quickstart.md", "cast-ray data build")], tmp_path)
    assert (tmp_path / "data/small/sokoban/mini/train.parquet").is_file()
    assert '"cost": 3' in (tmp_path / "costs.jsonl").read_text()


def test_turns_of_a_run_as_a_table(tmp_path: Path) -> None:
    from solver_actors.oracle import Oracle

    oracle = Oracle(max_bytes=2**20)
    games = [play(BOARD, scripted(["```\nRight\n```"] * 3), turn_budget=8, oracle=oracle)]
    write_step(new_run(tmp_path / "runs" / "mine"), 1, scored(games, oracle))
    code = block("runs.md", "explode", kind="python") + "\nassert len(turns) == 3\n"
    run([sys.executable, "-c", code], tmp_path)


@pytest.mark.timeout(300)
def test_a_value_network_as_tune_takes_it(tmp_path: Path) -> None:
    code = block("value_network.md", "build_config", kind="python")
    small = code.replace('"dqn.lr=1e-3"', '"dqn.lr=1e-3", "puzzles.num_train=20"')
    assert small != code
    run([sys.executable, "-c", small + "\nassert param_space.lr == 1e-3\n"], tmp_path)


def test_the_theory_s_page_is_written(tmp_path: Path) -> None:
    run(["bash", "-e", "-c", block("theory.md", "cast-ray theory")], tmp_path)
    assert "</html>" in (tmp_path / "theory.html").read_text()


def test_what_the_keys_of_a_section_mean(tmp_path: Path) -> None:
    (command,) = set(re.findall(r"`(cast-ray config \w+)`", (DOCS / "quickstart.md").read_text()))
    assert "advantage.alpha" in run(command.split(), tmp_path)
