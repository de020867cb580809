"""What of a board may be shown: everything in open games, no mine before a minefield is over."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from cast_ray.games import get_game
from cast_ray.games.analysis import visible_board
from cast_ray.games.game import Status
from lights_out.game import LightsOut
from tests.support.minefields import boards
from tests.support.rooms import FIXED

MINES = get_game("minesweeper")


def test_a_room_is_shown_as_it_is() -> None:
    game = get_game("sokoban")
    state = game.decode("#P_\n_X*\nO__")
    board = visible_board(game, state, is_over=False)
    assert board.rows == ("#P_", "_X*", "O__")
    assert board.text == game.observe(state)
    assert board.mines is None


def test_traffic_is_shown_in_six_rows() -> None:
    game = get_game("rush_hour")
    rows = ("B.....", "B.....", "AA....", "...xCC", "......", "DDD...")
    board = visible_board(game, game.decode("".join(rows)), is_over=True)
    assert board.rows == rows
    assert board.mines is None


def test_a_minefield_in_play_shows_flags_and_counts_alone() -> None:
    board = visible_board(MINES, MINES.decode("2+f\n.F."), is_over=False)
    assert board.rows == ("2.F", ".F.")
    assert board.mines is None


def test_a_minefield_that_is_over_lists_its_mines() -> None:
    board = visible_board(MINES, MINES.decode("2+f\n.F.\n..*"), is_over=True)
    assert board.rows == ("2.F", ".F.", "..*")
    assert board.mines == ((0, 1), (1, 1), (2, 2))


@FIXED
@given(boards())
def test_what_a_minefield_shows_is_what_the_policy_sees(text: str) -> None:
    state = MINES.decode(text)
    board = visible_board(MINES, state, is_over=False)
    listed = [re.sub(r"^\s*\d+", "", line).replace(" ", "") for line in board.text.split("\n")[1:]]
    assert list(board.rows) == listed
    assert set("".join(board.rows)) <= set(".F012345678")
    assert board.mines is None


@FIXED
@given(boards())
def test_mines_are_those_of_the_text(text: str) -> None:
    state = MINES.decode(text)
    over = visible_board(MINES, state, is_over=True)
    lines = text.split("\n")
    assert over.mines == tuple(
        (r, c) for r, line in enumerate(lines) for c, cell in enumerate(line) if cell in "+F"
    )
    assert MINES.status(state) is not Status.LOST


@pytest.mark.parametrize("is_over", [False, True])
def test_any_other_game_shows_the_policys_lines(is_over: bool) -> None:
    game = LightsOut()
    board = visible_board(game, game.decode("o.\n.o"), is_over=is_over)
    assert board.rows == ("Board:", "o.", ".o")
    assert board.text == game.observe(game.decode("o.\n.o"))
    assert board.mines is None
