"""The benchmarks: their figures, the last line of output, and a wrong name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gym import bench_gym
from benchmarks.main import BENCHMARKS
from benchmarks.solvers import bench_solve, make_lines
from benchmarks.sync import TransportRounds
from cast_ray.cli.bench import MEASURES, bench
from cast_ray.cli.main import main
from cast_ray.errors import ConfigError
from cast_ray.games import GAMES


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["cast-ray", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_every_game_has_its_figures() -> None:
    figures = bench_gym(num_steps=200, repeats=1)
    assert all(figures[f"{game}_steps_per_s"] > 0 for game in GAMES)
    assert all(figures[f"{game}_steps_alone_per_s"] > 0 for game in GAMES)


def test_states_in_play_are_all_solved() -> None:
    figures = bench_solve(num_states=600)
    assert (figures["num_states"], figures["num_bad"]) == (600, 0)


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


def test_unknown_benchmark_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "bench", "gymm") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cast-ray: ") and "'gymm'" in line and "bench --help" in line
    with pytest.raises(ConfigError) as refused:
        bench("gymm")
    assert "'gymm'" in str(refused.value) and ", ".join(BENCHMARKS) in str(refused.value)


def test_help_has_every_benchmark() -> None:
    assert MEASURES.keys() == BENCHMARKS.keys()


def test_installed_package_says_where_the_benchmarks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cast_ray.cli.bench.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"benchmarks/.*repository.*bench gym"):
        bench("gym")


def test_the_parts_of_a_transport_are_measured_and_add_up(tmp_path: Path) -> None:
    state = {f"w{i}": torch.randn(2**18).bfloat16() for i in range(4)}
    figures = TransportRounds(tmp_path / "weights", state).figures(2)
    assert figures["gigabytes"] == 4 * 2**19 / 1e9
    assert figures["move_s"] == figures["publish_s"] + figures["read_s"]
    assert figures["move_over_memcpy"] == figures["move_s"] / figures["memcpy_s"]
    assert min(figures.values()) > 0
    assert not (tmp_path / "weights").exists()


def test_four_times_a_state_is_copied_and_counted_four_times(tmp_path: Path) -> None:
    once = {f"w{i}": torch.randn(2**18).bfloat16() for i in range(4)}
    state = {f"{name}.{i}": once[name] for i in range(4) for name in once}
    figures = TransportRounds(tmp_path / "weights", state).figures(1)
    assert figures["gigabytes"] == 4 * 4 * 2**19 / 1e9
