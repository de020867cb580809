"""``cast-ray transfer``: the paper's transfer table by one command, on a made shop."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import read_attempts
from cast_ray.evaluation.transfer import parse_transfer, source_of
from tests.evaluation.test_eval_command import run
from tests.support.made_shop import write_shop


def command(out: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "cast_ray.cli", "transfer", *words, "--out", str(out)]


def test_one_command_fills_the_table(tmp_path: Path) -> None:
    env = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "WEBSHOP_DATA": str(write_shop(tmp_path / "data")),
    }
    agents = ["ReAct=random", "CAST/sokoban=random", "CAST/minesweeper=random"]
    words = ["--benchmarks", "webshop:synthetic-test", "--attempts", "40"]
    code, text, error = run(command(tmp_path / "out", *agents, *words), env)
    assert code == 0, error
    table = (tmp_path / "out/transfer.md").read_text()
    assert table.strip() in text
    head, _, react, cast = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[:4]
    )
    assert head == [
        "Method", "WebShop: Sok.", "WebShop: Mine.", "WebShop: Rush", "WebShop: Average",
    ]  # fmt: skip
    attempts = read_attempts(tmp_path / "out/attempts.parquet")
    num_tasks = len({attempt.puzzle_id for attempt in attempts})
    assert len(attempts) == 3 * num_tasks * 40
    assert {attempt.end_reason for attempt in attempts} <= {"solved", "lost", "turn_budget"}
    rates = {}
    for label in ("ReAct", "CAST/sokoban", "CAST/minesweeper"):
        own = [attempt.is_success for attempt in attempts if attempt.model == label]
        rates[label] = 100 * sum(own) / len(own)
    assert react[:4] == ["ReAct", "—", "—", "—"]
    assert f"{rates['ReAct']:.1f}" in react[4]
    assert f"{rates['CAST/sokoban']:.1f}" in cast[1]
    assert cast[3] == "—"
    # One of the paper's three agents is missing, and the average says so.
    mean = (rates["CAST/sokoban"] + rates["CAST/minesweeper"]) / 2
    assert f"{mean:.1f}" in cast[4] and "*" in cast[4]
    rewards = {attempt.reward for attempt in attempts}
    assert any(0 < reward < 1 for reward in rewards)  # graded, and no success
    assert json.loads((tmp_path / "out/results.json").read_text())["sources"]["ReAct"] == ["random"]


@pytest.mark.parametrize("benchmark", ["webshop", "alfworld"])
def test_without_its_data_the_command_says_how_to_get_them(tmp_path: Path, benchmark: str) -> None:
    env = {"WEBSHOP_DATA": "", "ALFWORLD_DATA": ""}
    words = ["ReAct=random", "--benchmarks", benchmark]
    code, _, error = run(command(tmp_path / "out", *words), env)
    assert code == 2
    [line] = error.strip().splitlines()
    is_there = benchmark == "webshop" or find_spec("alfworld")
    assert (f"{benchmark.upper()}_DATA" if is_there else "cast-ray[alfworld]") in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("agents", "benchmarks", "reason"),
    [
        (["random"], "webshop", "'random' .*METHOD=MODEL"),
        (["A/chess=random"], "webshop", "game.*sokoban.*chess"),
        (["A=random", "A/sokoban=random"], "webshop", "'A' .*METHOD/GAME=MODEL"),
        (["A=random"], "webshop:test,webshop:train", "--benchmarks webshop:test,webshop:train"),
        (["A=random"], "nethack", "nethack.*sokoban"),
    ],
)
def test_what_cannot_be_in_the_table_is_said_before_anything_is_played(
    agents: list[str], benchmarks: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_transfer(agents, [], benchmarks=benchmarks)


def test_a_label_names_method_and_game() -> None:
    assert source_of("CAST/rush_hour") == ("CAST", "rush_hour")
    assert source_of("ReAct") == ("ReAct", None)
