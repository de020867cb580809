"""The plain search that solvers are timed beside says what they say."""

from __future__ import annotations

import numpy as np
import pytest

from cast_ray.games import get_game
from cast_ray.generators import get_generator
from cast_ray.jobs.plain_search import plain_costs
from solver_actors.solvers import get_solver_entry


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
