"""Solvers in plain Python, which others are timed beside, say what those say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.solvers import minefield
from cast_ray.games import get_game
from cast_ray.games.generators import get_generator
from cast_ray.games.sokoban import Sokoban
from solver_actors import plain_search
from solver_actors.plain_search import PlainSolver, plain_costs
from solver_actors.registry import get_solver_entry
from tests.solver_actors.minesweeper_states import random_state
from tests.solver_actors.plain_minesweeper import cost_to_go, costs_to_go


class PlainSokoban(PlainSolver[Any]):
    game = Sokoban()


@pytest.mark.parametrize("game_name", ["sokoban", "rush_hour"])
def test_plain_costs_are_the_solvers(game_name: str) -> None:
    game, rng = get_game(game_name), np.random.default_rng(0)
    for _ in range(4):
        start = get_generator(game_name)(game.tiers["mini"], rng)
        costs = plain_costs(game, start)
        assert sum(cost == 0 for cost in costs.values()) >= 1
        solver = get_solver_entry(game_name).build(start)
        states = list(costs)
        assert solver.cost_to_go(states).tolist() == list(costs.values())


def test_plain_solver_knows_the_way_and_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    game = PlainSokoban.game
    start = game.decode("######\n#_P__#\n#_X_O#\n#____#\n######")
    solver, other = PlainSokoban(), get_solver_entry("sokoban").build(start)
    dead = game.apply(start, "Down").state
    assert solver.cost_to_go([start, dead]).tolist() == other.cost_to_go([start, dead]).tolist()
    assert solver.best_action(start) == other.best_action(start)
    assert solver.action_costs(start) == other.action_costs(start)
    assert solver.memory_bytes > 1000
    monkeypatch.setattr(plain_search, "MAX_STATES", 3)
    assert np.isnan(PlainSokoban().cost_to_go([start])).all()
    assert not PlainSokoban().is_dead(start)


def test_reveals_of_boards_on_one_another_s_way_are_those_of_each_alone() -> None:
    boards = [random_state(seed, "id") for seed in range(30)]
    assert costs_to_go(boards) == [cost_to_go(board) for board in boards]
    assert costs_to_go([*boards, *boards]) == 2 * costs_to_go(boards)


def test_a_board_of_the_rules_is_the_same_as_sets_of_cells() -> None:
    game = get_game("minesweeper")
    board = minefield(game.decode("1F1\n.22\n..+"))
    assert (board.rows, board.cols, board.mines) == (3, 3, {(0, 1), (2, 2)})
    assert board.revealed == {(0, 0), (0, 2), (1, 1), (1, 2)}
