"""Code and commands on the pages that take seconds run as they are.

tests/ray and tests/web run what trains, serves or evaluates, with smaller values;
test_documentation.py checks that its commands, options and keys exist.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest

from cast_ray.runs.metrics import write_metrics
from cast_ray.runs.recoveries import Recovery
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.oracle import Oracle
from tests.support.made_up_run import (
    new_run,
    play,
    scored,
    scripted,
    step_row,
    write_evaluation,
    write_step,
)

DOCS = Path(__file__).parents[2] / "docs"
BOARD = "######\n#P_X_O\n######"
ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"


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


def test_what_the_keys_of_a_section_mean(tmp_path: Path) -> None:
    (command,) = set(re.findall(r"`(cast-ray config \w+)`", (DOCS / "quickstart.md").read_text()))
    assert "advantage.alpha" in run(command.split(), tmp_path)


# One-liners of docs/data.md and docs/observability.md


def one_liners(page: str) -> list[str]:
    return (DOCS / page).read_text().partition("```python\n")[2].partition("```")[0].splitlines()


ONE_LINERS = [*one_liners("data.md"), *one_liners("observability.md")]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a run of three steps, the second stale, the third replayed, with a recovery."""
    directory = new_run(tmp_path_factory.mktemp("runs") / "run")
    oracle = Oracle(max_bytes=2**20)
    way = ["Right", "Down", "Left", "Down", "Right"]

    def played(step: int) -> list:
        return [
            play(
                ROOM,
                scripted([f"```{action}```" for action in actions]),
                turn_budget=len(actions),
                oracle=oracle,
                step=step,
                episode=episode,
            )
            for episode, actions in enumerate([way, way[::-1], ["Up", "Right"]])
        ]

    for step in (1, 2):
        write_step(directory, step, scored(played(step), oracle))
    write_evaluation(directory, "after", scored(played(2), oracle))
    nan = float("nan")
    rows = [
        step_row(1, engine_busy_fractions=(0.5, nan), staleness_tokens=(10,), seconds_total=4.0),
        step_row(2, engine_busy_fractions=(0.5, 0.25), staleness_tokens=(15, 5)),
        step_row(3, is_replayed=True, seconds_generation=nan, staleness_tokens=(10,)),
    ]
    write_metrics(directory.metrics, rows)
    one = Recovery(utc="2026-01-02T03:04:05+00:00", kind="engine", what="engine-0", seconds=40.0)
    directory.recoveries.write_text(json.dumps(asdict(one)) + "\n")
    return directory


@pytest.mark.parametrize("line", ONE_LINERS)
def test_one_liner_gives_a_table(
    run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(run_dir.path)
    found = eval(line, {"pl": pl})
    assert isinstance(found, pl.DataFrame)
    assert len(found) > 0


def test_line_about_stale_tokens_gives_their_share(
    run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_dir.path)
    (line,) = [line for line in ONE_LINERS if "stale=" in line]
    assert eval(line, {"pl": pl})["stale"].to_list() == [0.0, 0.25, 0.0]


def test_data_page_has_the_shapes_of_a_trajectory(run_dir: RunDirectory) -> None:
    row = pl.read_parquet(run_dir.trajectory_files()[0]).row(0, named=True)
    sizes = {
        "": None,
        "`[L]`": len(row["token_ids"]),
        "`[T]`": len(row["effects"]),
        "`[T + 1]`": len(row["states"]),
    }
    assert len(set(sizes.values())) == 4
    stages = (DOCS / "data.md").read_text().partition("\n## Stage 1")[2]
    stages = stages.partition("\n## Puzzle files")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+? \| (.*?) ?\| .+ \|$", stages, re.MULTILINE)
    found = {name: len(v) if isinstance(v, list) else None for name, v in row.items()}
    assert found == {name: sizes[shape] for name, shape in rows}
