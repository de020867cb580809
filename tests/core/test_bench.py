"""The benchmarks: their figures, the last line of output, and a wrong name."""

from __future__ import annotations

import json
import sys

import pytest

from cast_ray.cli import main
from cast_ray.jobs.bench import BENCHMARKS
from cast_ray.jobs.bench_gym import bench_gym
from cast_ray.jobs.bench_solve import bench_solve, make_lines


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["cast-ray", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_numeric_environments_step_faster_than_promised() -> None:
    figures = bench_gym(num_steps=2_000, repeats=3)
    games = ("sokoban", "rush_hour", "minesweeper")
    # Promised are 50,000; hundreds of thousands are usual, so that a busy machine does not matter.
    assert [figures[f"{game}_steps_per_s"] > 50_000 for game in games] == [True] * 3
    assert all(figures[f"{g}_steps_alone_per_s"] > figures[f"{g}_steps_per_s"] for g in games)


def test_states_in_play_are_solved_within_a_millisecond_each() -> None:
    figures = bench_solve(num_states=600)
    assert (figures["num_states"], figures["num_bad"]) == (600, 0)
    # 10,000 within 10 s are promised; a quarter of that is usual.
    assert figures["us_per_state"] < 1_000


def test_states_are_of_all_games_and_both_tiers_and_of_many_puzzles() -> None:
    lines = [json.loads(line) for line in make_lines(num_states=120, states_per_puzzle=5)]
    games = [line["game"] for line in lines]
    assert sorted(games) == ["minesweeper"] * 40 + ["rush_hour"] * 40 + ["sokoban"] * 40
    fields = [line for line in lines if line["game"] == "minesweeper"]
    assert {line["rows"] for line in fields} == {6, 7}
    assert len({str(line["mines"]) for line in fields}) >= 8
    assert any("1" in row for line in fields for row in line["flags"])


def test_last_line_of_a_benchmark_is_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(BENCHMARKS, "gym", lambda: bench_gym(num_steps=10, repeats=1))
    assert run_cli(monkeypatch, "bench", "gym") == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["sokoban_steps_per_s"] > 0


def test_unknown_benchmark_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "bench", "gymm") == 2
    assert capsys.readouterr().err == (
        "cast-ray: the benchmark must be one of gym, solve, got 'gymm'\n"
    )
