"""What the table of solvers says of each game: whom a player follows, and what ends an episode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cast_ray.games import GAMES, get_game
from cast_ray.games.game import Status
from solver_actors.registry import get_solver_entry, has_deadlocks
from tests.support import minefields, rush_hour_boards
from tests.support.rooms import FIXED

GUESSES = "....+\n+.+21\n++210\n22100\n00000"
"""The solver hits a mine, so K is infinite and there is no best action."""
BOARDS = {"minesweeper": minefields.boards(), "rush_hour": rush_hour_boards.boards()}


@pytest.mark.parametrize("game", [name for name in GAMES if not has_deadlocks(name)])
@FIXED
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_in_a_game_without_deadlocks_no_play_comes_to_a_dead_state_that_goes_on(
    game: str, data: st.DataObject, seed: int
) -> None:
    rules, rng = get_game(game), np.random.default_rng(seed)
    state = rules.decode(data.draw(BOARDS[game]))
    solver = get_solver_entry(game).build(state)
    assume(rules.status(state) is Status.PLAYING and not solver.is_dead(state))
    for _ in range(12):
        actions = rules.scored_actions(state)
        if rules.status(state) is not Status.PLAYING or not actions:
            break
        state = rules.apply(state, actions[rng.integers(len(actions))]).state
        assert not solver.is_dead(state) or rules.status(state) is Status.LOST


def test_sokoban_alone_can_be_lost_without_its_rules_saying_so() -> None:
    assert [game for game in GAMES if has_deadlocks(game)] == ["sokoban"]


def test_player_who_follows_the_minesweeper_solver_plays_on_where_it_loses() -> None:
    entry, state = get_solver_entry("minesweeper"), get_game("minesweeper").decode(GUESSES)
    solver = entry.build(state)
    assert solver.best_action(state) is None
    assert entry.next_action(solver, state) == "reveal 1 1"


@pytest.mark.parametrize(
    ("game", "board"),
    [("sokoban", "#P_X_O"), ("sokoban", "#XP__O"), ("rush_hour", "." * 12 + "AA" + "." * 22)],
)
def test_player_who_follows_another_solver_plays_its_best_action(game: str, board: str) -> None:
    entry, state = get_solver_entry(game), get_game(game).decode(board)
    solver = entry.build(state)
    assert entry.next_action(solver, state) == solver.best_action(state)
