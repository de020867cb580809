"""Where a Minesweeper game begins: first clicks, tiers, the generator, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cast_ray.errors import PuzzleError
from cast_ray.games import GAMES, get_game
from cast_ray.games.game import Status
from cast_ray.games.generators import GENERATORS
from cast_ray.games.generators.minesweeper import generate_minesweeper
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.minesweeper_board import start_state
from tests.support.refusals import refused

GAME = Minesweeper()


def test_start_opens_the_first_click_by_flood_fill() -> None:
    state = start_state(3, 4, mines=[(0, 3), (2, 0)], first_click=(0, 0))
    assert GAME.encode(state) == "001+\n111.\n+..."
    number = start_state(3, 4, mines=[(0, 3), (2, 0)], first_click=(1, 1))
    assert GAME.encode(number) == "...+\n.1..\n+..."


@pytest.mark.parametrize(
    ("shape", "mines", "first_click", "facts"),
    [
        ((0, 4), [], (0, 0), ("0 rows", "4 columns", "no cell")),
        ((2, 2), [(2, 0)], (0, 0), ("row 2, column 0",)),
        ((2, 2), [(0, -1)], (0, 0), ("row 0, column -1",)),
        ((2, 2), [(1, 1)], (0, 2), ("row 0, column 2",)),
        ((2, 2), [(1, 1), (1, 1)], (0, 0), ("row 1, column 1", "twice")),
        ((2, 2), [(1, 1)], (1, 1), ("first click", "row 1, column 1")),
        ((1, 2), [(0, 0), (0, 1), (0, 0)], (0, 0), ("row 0, column 0", "twice")),
    ],
)
def test_impossible_start_is_refused_with_row_and_column(
    shape: tuple[int, int],
    mines: list[tuple[int, int]],
    first_click: tuple[int, int],
    facts: tuple[str, ...],
) -> None:
    with refused(PuzzleError, *facts):
        start_state(*shape, mines=mines, first_click=first_click)


def test_rules_are_short_and_name_every_symbol_and_action() -> None:
    words = {word.strip(".,;:`") for word in GAME.rules.split()}
    assert len(GAME.rules.split()) <= 100
    assert {"F", "0", "8", "*", "reveal", "flag"} <= words
    assert ". hidden" in GAME.rules
    assert GAME.parse(GAME.rules) == "reveal 3 2"


def test_tiers_are_those_of_the_specification() -> None:
    sizes = {
        name: (tier.rows, tier.cols, tier.num_pieces, tier.turn_budget)
        for name, tier in GAME.tiers.items()
    }
    assert sizes == {
        "id": (6, 6, 7, 30),
        "unseen": (7, 7, 10, 40),
        "mini": (5, 5, 4, 14),
        "mini-unseen": (5, 5, 5, 14),
    }
    assert all(tier.min_cost == 1 for tier in GAME.tiers.values())
    assert all(tier.max_cost == tier.turn_budget for tier in GAME.tiers.values())


def test_game_and_generator_are_found_by_name() -> None:
    assert get_game("minesweeper") is GAMES["minesweeper"]
    assert GENERATORS["minesweeper"] is generate_minesweeper


def test_generated_boards_have_the_mines_of_the_tier_and_are_open_to_play() -> None:
    tier = GAME.tiers["mini"]
    states = [generate_minesweeper(tier, np.random.default_rng(seed)) for seed in range(300)]
    assert {state.layout.mines.bit_count() for state in states} == {tier.num_pieces}
    assert {GAME.status(state) for state in states} == {Status.PLAYING}
    assert {state.flags for state in states} == {0}


def test_generated_clicks_open_a_zero_and_mines_are_uniform_outside_its_zone() -> None:
    tier = GAME.tiers["id"]
    num_boards = 2000
    states = [generate_minesweeper(tier, np.random.default_rng(seed)) for seed in range(num_boards)]
    assert all("0" in GAME.encode(state) for state in states)
    places = [divmod(cell, 6) for cell in range(36)]
    outside = np.array(
        [[max(abs(r - i), abs(c - j)) > 1 for r, c in places] for i, j in places]
    )  # [click, cell]
    expected = (outside * tier.num_pieces / outside.sum(axis=1, keepdims=True)).mean(axis=0)
    found = [sum(state.layout.mines >> cell & 1 for state in states) for cell in range(36)]
    # Five standard deviations of a binomial of 2,000 draws at 0.2 are 0.045.
    np.testing.assert_allclose(np.array(found) / num_boards, expected, atol=0.045)


def test_same_seed_gives_the_same_board() -> None:
    tier = GAME.tiers["id"]
    first, second = (generate_minesweeper(tier, np.random.default_rng(7)) for _ in range(2))
    assert first == second


def test_tier_without_space_for_its_mines_is_refused() -> None:
    tier = replace(GAME.tiers["mini"], num_pieces=17)
    with pytest.raises(PuzzleError, match=r"mini.*17 mines.*5 x 5"):
        generate_minesweeper(tier, np.random.default_rng(0))


def test_tier_that_every_click_wins_is_refused() -> None:
    tier = replace(GAME.tiers["mini"], num_pieces=0)
    with pytest.raises(PuzzleError, match=r"first click.*1000 boards"):
        generate_minesweeper(tier, np.random.default_rng(0))
