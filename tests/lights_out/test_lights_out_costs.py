"""Lights Out itself: its rules on drawn boards, and its solver against a search of all boards."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, Status
from lights_out.game import LightsOut, LightsOutState, generate_lights_out
from lights_out.solver import LIGHTS_OUT, LightsOutSolver
from tests.support.refusals import refused

GAME = LightsOut()


def after(text: str, *actions: str) -> str:
    state = GAME.decode(text)
    for action in actions:
        state = GAME.apply(state, action).state
    return GAME.encode(state)


def fewest_presses(rows: int, cols: int) -> dict[int, int]:
    """Return the distance from the dark board of every board in reach, by breadth-first search."""
    presses = [
        GAME.apply(
            LightsOutState(rows=rows, cols=cols, lights=0), f"press {row} {col}"
        ).state.lights
        for row in range(rows)
        for col in range(cols)
    ]
    distances, newest, num_presses = {0: 0}, {0}, 0
    while newest:
        num_presses += 1
        newest = {board ^ press for board in newest for press in presses} - distances.keys()
        distances |= dict.fromkeys(newest, num_presses)
    return distances


def test_press_switches_the_cell_and_its_neighbours_on_the_board() -> None:
    assert after("...\n...\n...", "press 1 1") == ".o.\nooo\n.o."
    assert after("...\n...\n...", "press 0 0") == "oo.\no..\n..."
    assert after("...\n...\n...", "press 1 1", "press 1 2") == ".oo\no..\n.oo"
    assert after("o..", "press 0 2", "press 0 2") == "o.."


def test_press_beside_the_board_is_illegal_and_changes_nothing() -> None:
    state = GAME.decode("o.\n..")
    transition = GAME.apply(state, "press 0 2")
    assert (transition.state, transition.effect) == (state, Effect.ILLEGAL)
    assert transition.feedback == (
        "press 0 2: that cell is not on the board, rows are 0 to 1, columns 0 to 1."
    )


def test_game_is_won_when_all_is_dark() -> None:
    assert GAME.status(GAME.decode("..")) is Status.WON
    assert GAME.status(GAME.decode(".o")) is Status.PLAYING


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("empty", "row 0, column 0")),
        ("o.\n.x", ("'x'", "row 1, column 1")),
        ("o.\n...", ("ragged", "row 1, column 2")),
        ("." * 10, ("1 rows", "10 columns", "at most 9")),
    ],
)
def test_broken_board_is_refused(text: str, facts: tuple[str, ...]) -> None:
    with refused(PuzzleError, *facts):
        GAME.decode(text)


@pytest.mark.parametrize(("rows", "cols", "num_solvable"), [(2, 3, 16), (3, 3, 512), (4, 4, 4096)])
def test_costs_equal_a_search_of_all_boards_unsolvable_ones_included(
    rows: int, cols: int, num_solvable: int
) -> None:
    expected = fewest_presses(rows, cols)
    states = [LightsOutState(rows=rows, cols=cols, lights=n) for n in range(2 ** (rows * cols))]
    costs = LightsOutSolver(rows, cols).cost_to_go(states)
    assert costs.tolist() == [expected.get(state.lights, math.inf) for state in states]
    assert np.isfinite(costs).sum() == num_solvable


def test_unsolvable_board_is_dead_and_has_no_best_press() -> None:
    state = GAME.decode("oo..\n....\n....\n....")
    solver = LIGHTS_OUT.solver.build(state)
    assert solver.is_dead(state)
    assert solver.best_action(state) is None
    assert set(solver.action_costs(state).values()) == {math.inf}


def test_mini_tier_has_the_puzzles_that_a_default_run_asks_for() -> None:
    tier = GAME.tiers["mini"]
    states = [generate_lights_out(tier, np.random.default_rng(seed)) for seed in range(1000)]
    assert len({GAME.canonical(state) for state in states}) > 700
    costs = LightsOutSolver(tier.rows, tier.cols).cost_to_go(states)
    assert ((costs >= tier.min_cost) & (costs <= tier.max_cost)).mean() > 0.99
