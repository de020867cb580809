"""Networks held against the exact solver: what is played, what is said, what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.config.load import save_config
from cast_ray.config.train import PuzzleConfig, TrainConfig
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.datasets.splits import Boards, make_boards, write_boards
from cast_ray.errors import ConfigError, ModelError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.game import Status
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle, write_puzzles
from cast_ray.training.value_net import analysis
from cast_ray.training.value_net.analysis import (
    LARGEST_Q,
    LOOKING_AHEAD,
    ValueNetAnalysis,
    analyse_value_net,
    puzzles_for,
)
from solver_actors.registry import SolverEntry, StartSolver, get_solver_entry
from solver_actors.value_net.network import QNetwork, load_q_network, save_q_network, shape_for
from solver_actors.value_net.scale import ValueNetOracle, ValueScale
from solver_actors.value_net.solver import value_net_entry

SMALL = {"d_model": 16, "num_heads": 2, "num_layers": 1, "output_size": 24}


def network(game: str = "rush_hour", tier: str = "mini") -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(shape_for(game, tier, **SMALL)).eval()


def boards(game: str = "rush_hour", tier: str = "mini", *, count: int = 6) -> list[Puzzle]:
    solve = StartSolver(game).solve
    return build_puzzles(game=game, tier=tier, count=count, seed=5, solve=solve)


class ScriptedTeacher:
    """Stands in for ``ValueNetSolver``: knows N, and tells ``slope`` times it as its estimate."""

    memory_bytes = 0

    def __init__(self, game: str, state: Any, slope: float) -> None:
        self.exact, self.slope = get_solver_entry(game).build(state), slope

    def cost_to_go(self, states: Sequence[Any]) -> np.ndarray:
        return self.slope * self.exact.cost_to_go(states)

    def action_costs(self, state: Any) -> dict[str, float]:
        return {a: self.slope * cost for a, cost in self.exact.action_costs(state).items()}

    def best_action(self, state: Any) -> str | None:
        costs = self.action_costs(state)
        return min(costs, key=costs.__getitem__)

    def is_dead(self, state: Any) -> bool:
        return False


def taught_by(slope: float, monkeypatch: pytest.MonkeyPatch) -> ValueNetAnalysis:
    """Return the analysis of a teacher that is not the network."""
    entry = SolverEntry(
        build=lambda state: ScriptedTeacher("rush_hour", state, slope), layout_key=lambda _: 0
    )
    monkeypatch.setattr(analysis, "value_net_entry", lambda oracle: entry)
    return analyse_value_net(network(), boards(), tier="mini")


def test_a_teacher_who_knows_n_is_perfect_and_solves_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = taught_by(0.1, monkeypatch)
    quality = found.quality
    assert quality.spearman and quality.sign_agreement and quality.optimal_choice
    assert quality.spearman.value == pytest.approx(1)
    assert (quality.sign_agreement.value, quality.optimal_choice.value) == (1, 1)
    assert {way: rate.success for way, rate in found.play.items()} == {
        LARGEST_Q: 1,
        LOOKING_AHEAD: 1,
    }


def test_a_teacher_who_has_it_backwards_solves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = taught_by(-0.1, monkeypatch)
    assert found.quality.spearman and found.quality.sign_agreement
    assert found.quality.spearman.value == pytest.approx(-1)
    assert found.quality.sign_agreement.value == 0
    assert {way: rate.success for way, rate in found.play.items()} == {
        LARGEST_Q: 0,
        LOOKING_AHEAD: 0,
    }


@pytest.mark.parametrize("game", ["rush_hour", "sokoban", "minesweeper"])
def test_every_state_is_undecided_distinct_and_has_its_exact_costs(game: str) -> None:
    found = analyse_value_net(network(game), boards(game, count=3), tier="mini")
    rules = get_game(game)
    assert len({(one.puzzle, one.board) for one in found.states}) == len(found.states) > 10
    assert {one.puzzle for one in found.states} == {0, 1, 2}
    for one in found.states:
        state = rules.decode(one.board)
        exact = get_solver_entry(game).build(state)
        assert rules.status(state) is Status.PLAYING
        assert one.cost == exact.cost_to_go([state])[0]
        assert dict(zip(one.actions, one.costs_after, strict=True)) == exact.action_costs(state)
        assert np.isfinite([one.value, *one.values_after]).all()
    assert (LOOKING_AHEAD not in found.play) == (game == "minesweeper")  # it would see the mines
    assert found.quality.num_infinite == sum(math.isinf(one.cost) for one in found.states)


def test_the_states_are_those_of_the_networks_play_the_solvers_and_random_play() -> None:
    made, puzzles, rules = network(), boards(), get_game("rush_hour")
    found = analyse_value_net(made, puzzles, tier="mini")
    met = {(one.puzzle, one.board) for one in found.states}
    own = value_net_entry(ValueNetOracle(network=made, scale=ValueScale()))
    for number, puzzle in enumerate(puzzles):
        start = rules.decode(puzzle.board)
        line: list[tuple[int, str]] = []
        for solver in (own.build(start), get_solver_entry("rush_hour").build(start)):
            state, turns = start, 0
            while rules.status(state) is Status.PLAYING and turns < 8:
                line.append((number, rules.encode(state)))
                action = solver.best_action(state)
                assert action is not None
                state, turns = rules.apply(state, action).state, turns + 1
        assert met >= set(line)
        assert len({one for one in met if one[0] == number}) > len(set(line))  # random play


def test_same_seed_says_the_same() -> None:
    first, second = (analyse_value_net(network(), boards(), tier="mini", seed=3) for _ in range(2))
    assert first == second


def test_a_net_of_four_vehicles_is_judged_on_boards_of_nine() -> None:
    found = analyse_value_net(network(tier="mini"), boards(tier="unseen", count=2), tier="unseen")
    assert any("I" in one.board for one in found.states)


def test_the_command_writes_figures_states_and_a_page(tmp_path: Path) -> None:
    save_q_network(network(), tmp_path / "net")
    write_puzzles(tmp_path / "boards.parquet", boards())
    given = ("--tier", "mini", "--file", str(tmp_path / "boards.parquet"), "--boards", "4")
    done = CliRunner().invoke(app, ["value-net", "analyse", str(tmp_path / "net"), *given])
    assert done.exit_code == 0, done.output
    out = tmp_path / "analysis-mini"
    expected = analyse_value_net(load_q_network(tmp_path / "net"), boards()[:4], tier="mini")
    figures = json.loads((out / "analysis.json").read_text())
    assert expected.quality.spearman is not None
    assert figures["spearman"]["value"] == pytest.approx(expected.quality.spearman.value)
    assert figures["boards"] == 4
    assert pq.read_table(out / "analysis.parquet").num_rows == len(expected.states)
    page = (out / "analysis.html").read_text()
    assert "How good a teacher is it?" in page
    assert page.count("<figure>") == 4
    assert f"{expected.quality.spearman.value:.3f}".replace("-", "−") in page
    assert "Spearman’s correlation of V with −N" in done.output


def test_boards_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    save_q_network(network(), tmp_path / "net")
    write_puzzles(tmp_path / "other.parquet", boards("sokoban"))
    with pytest.raises(ConfigError, match=r"--tier.*id, unseen, mini"):
        puzzles_for(tmp_path / "net", tier="", file=None, limit=5)
    with pytest.raises(PuzzleError, match=r"other.parquet.*rush_hour:mini.*sokoban:mini"):
        puzzles_for(tmp_path / "net", tier="mini", file=tmp_path / "other.parquet", limit=5)
    with pytest.raises(ModelError, match=r"q_network\.json"):
        puzzles_for(tmp_path, tier="mini", file=None, limit=5)
    with pytest.raises(ModelError, match=r"rows.* 7\b.* 6\b"):
        analyse_value_net(network("sokoban", "id"), [], tier="unseen")


def test_boards_that_the_network_learned_from_are_refused(tmp_path: Path) -> None:
    config = ValueNetConfig(game="rush_hour", tier="mini")
    save_config(config, tmp_path / "config.yaml")
    for name in ("base", "value_net"):
        save_q_network(network(), tmp_path / name)
    known = boards()
    (tmp_path / "puzzles").mkdir()
    write_boards(Boards(train=known[:3], validation=[], held_out=known[3:5]), tmp_path / "puzzles")
    write_puzzles(tmp_path / "all.parquet", known)
    net = tmp_path / "value_net"
    assert puzzles_for(net, tier="", file=None, limit=5) == known[3:5]
    with pytest.raises(PuzzleError, match=rf"\b3 of .*\b{len(known)}\b.*all.parquet"):
        puzzles_for(net, tier="", file=tmp_path / "all.parquet", limit=5)


def test_a_network_in_a_run_that_it_taught_is_judged_on_boards_of_its_own_seed(
    tmp_path: Path,
) -> None:
    save_config(TrainConfig(game="rush_hour"), tmp_path / "config.yaml")
    save_q_network(network(), tmp_path / "value_net")
    with pytest.raises(ConfigError, match="--tier"):
        puzzles_for(tmp_path / "value_net", tier="", file=None, limit=5)
    found = puzzles_for(tmp_path / "value_net", tier="mini", file=None, limit=5)
    usual = make_boards("rush_hour", "mini", PuzzleConfig(num_train=50, num_held_out=5))
    assert len(found) == 5
    assert not {one.puzzle_id for one in found} & {one.puzzle_id for one in usual.train}
