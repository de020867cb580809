"""Generated Rush Hour boards: from the seed alone, of the tier, and no others than plain luck's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Status, Tier
from cast_ray.games.generators import build_puzzles
from cast_ray.games.generators.rush_hour import generate_rush_hour
from cast_ray.games.rush_hour import RushHour, RushHourState
from solver_actors.rush_hour.table import solve_rush_hour

GAME = RushHour()
TIERS = list(GAME.tiers.values())


def solve(state: RushHourState) -> float:
    return float(solve_rush_hour(state).cost_to_go([state])[0])


def generated(tier: Tier, *, count: int) -> list[RushHourState]:
    return [generate_rush_hour(tier, np.random.default_rng(seed)) for seed in range(count)]


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_board_follows_from_the_state_of_the_generator(tier: Tier) -> None:
    assert generated(tier, count=5) == generated(tier, count=5)
    assert len({GAME.canonical(state) for state in generated(tier, count=20)}) == 20


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_board_has_the_vehicles_of_its_tier_and_is_open(tier: Tier) -> None:
    for state in generated(tier, count=20):
        assert GAME.decode(GAME.encode(state)) == state
        assert len(state.offsets) == tier.num_pieces
        assert GAME.status(state) is Status.PLAYING
        assert state.layout.lengths[0] == 2
        assert not any(state.layout.walls)


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_hardly_a_board_is_outside_the_range_of_its_tier(tier: Tier) -> None:
    costs = [solve(state) for state in generated(tier, count=40)]
    assert np.mean([tier.min_cost <= cost <= tier.max_cost for cost in costs]) >= 0.95


@pytest.mark.parametrize("num_vehicles", [3, 6])
def test_the_look_ahead_skips_boards_and_changes_none(num_vehicles: int) -> None:
    tier = replace(GAME.tiers["mini"], num_pieces=num_vehicles, min_cost=3, max_cost=4)
    # A look-ahead of one slide finds 1 or nothing, and both are in this range.
    plain = replace(tier, min_cost=-1, max_cost=1)
    rng, plain_rng = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(10):
        state = generate_rush_hour(plain, plain_rng)
        while not tier.min_cost <= solve(state) <= tier.max_cost:
            state = generate_rush_hour(plain, plain_rng)
        assert generate_rush_hour(tier, rng) == state


def test_tier_that_no_board_fits_is_an_error() -> None:
    tier = replace(GAME.tiers["mini"], num_pieces=1, min_cost=2, max_cost=2)
    with pytest.raises(PuzzleError, match=r"mini.*1 vehicles"):
        generate_rush_hour(tier, np.random.default_rng(0))


def test_puzzles_are_built_with_few_boards_wasted() -> None:
    puzzles = build_puzzles(game="rush_hour", tier="id", count=30, seed=1, solve=solve, patience=5)
    assert len({puzzle.puzzle_id for puzzle in puzzles}) == 30
    assert all(6 <= puzzle.cost <= 8 for puzzle in puzzles)
