"""The rules of Minesweeper and what the policy sees."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.games.game import Effect, Status
from cast_ray.games.minesweeper import Minesweeper
from tests.support.minefields import boards
from tests.support.play import board_after
from tests.support.rooms import FIXED

GAME = Minesweeper()


after = partial(board_after, GAME)


def test_reveal_of_a_number_opens_that_cell_only() -> None:
    assert after("+..\n...", "reveal 0 1") == "+1.\n..."


def test_reveal_of_a_zero_opens_all_zeros_in_reach_and_their_border() -> None:
    assert after(".....\n..+..\n.....", "reveal 0 0") == "01...\n01+..\n01..."
    assert after("....+\n.....\n+....", "reveal 0 0") == "0001+\n11011\n+1000"


def test_flood_stops_at_numbers() -> None:
    assert after("......\n.++++.\n......\n......", "reveal 3 0") == (
        "......\n.++++.\n123321\n000000"
    )


def test_flood_leaves_flagged_cells_closed() -> None:
    assert after("...\n.f.\n...", "reveal 0 0") == "000\n0f0\n000"


def test_a_wall_of_flags_stops_the_flood() -> None:
    assert after(".f.\n.f.", "reveal 0 0") == "0f.\n0f."
    assert after("0f.\n0f.", "flag 0 1", "reveal 0 1") == "000\n0f0"


def test_flood_does_not_start_again_from_a_zero_that_was_open() -> None:
    # The flag at the far left is lifted: its cell stays closed until it is revealed itself.
    assert after("f0f..", "flag 0 0", "flag 0 2", "reveal 0 2") == ".0000"


def test_flag_is_set_and_lifted_and_nothing_else_changes() -> None:
    assert after("+.", "flag 0 0") == "F."
    assert after("+.", "flag 0 1") == "+f"
    assert after("+.", "flag 0 1", "flag 0 1") == "+."
    assert after("F1\n..", "flag 0 0", "flag 1 1") == "+1\n.f"


def test_reveal_of_a_mine_loses_and_shows_the_mine() -> None:
    state = GAME.decode("+.\n.+")
    lost = GAME.apply(state, "reveal 1 1").state
    assert GAME.encode(lost) == "+.\n.*"
    assert GAME.status(lost) is Status.LOST
    assert GAME.observe(lost) == "  0 1\n0 . .\n1 . *"


def test_game_is_won_when_every_safe_cell_is_open_flags_or_not() -> None:
    assert GAME.status(GAME.decode("+1\n11")) is Status.WON
    assert GAME.status(GAME.decode("F1\n11")) is Status.WON
    assert GAME.status(GAME.decode("+1\n1.")) is Status.PLAYING
    assert GAME.status(GAME.decode("+1\n1f")) is Status.PLAYING
    assert GAME.status(GAME.decode("*1\n11")) is Status.LOST


@pytest.mark.parametrize(
    ("board", "action", "feedback"),
    [
        ("1+.", "reveal 0 0", "reveal 0 0: that cell is already revealed."),
        ("1+.", "flag 0 0", "flag 0 0: that cell is already revealed."),
        (
            "1Ff",
            "reveal 0 1",
            "reveal 0 1: that cell carries your flag, which flag 0 1 takes away.",
        ),
        (
            "1Ff",
            "reveal 0 2",
            "reveal 0 2: that cell carries your flag, which flag 0 2 takes away.",
        ),
        (
            "1+.",
            "reveal 1 0",
            "reveal 1 0: that cell is not on the board, rows are 0 to 0, columns 0 to 2.",
        ),
        (
            "1+.",
            "flag 0 3",
            "flag 0 3: that cell is not on the board, rows are 0 to 0, columns 0 to 2.",
        ),
        (
            "1+.",
            "flag 0 " + "1" * 5000,
            "flag: that cell is not on the board, rows are 0 to 0, columns 0 to 2.",
        ),
        ("1*.", "reveal 0 2", "reveal: the game is over."),
        ("1+1", "flag 0 1", "flag: the game is over."),
    ],
)
def test_illegal_action_changes_nothing_and_says_why(
    board: str, action: str, feedback: str
) -> None:
    state = GAME.decode(board)
    transition = GAME.apply(state, action)
    assert transition.effect is Effect.ILLEGAL
    assert transition.state is state
    assert transition.feedback == feedback


@pytest.mark.parametrize(
    "action", ["reveal 0", "Reveal 0 0", "reveal 0 0 ", "reveal 00 0", "reveal -1 0", "open 0 0"]
)
def test_action_in_another_spelling_is_a_programming_error(action: str) -> None:
    with pytest.raises(ValueError, match=r"action.*reveal R C.*flag R C"):
        GAME.apply(GAME.decode("+."), action)


def test_scored_actions_are_reveals_row_by_row_then_the_lifting_of_flags() -> None:
    assert GAME.scored_actions(GAME.decode(".F+\nf2.")) == (
        "reveal 0 0",
        "reveal 0 2",
        "reveal 1 2",
        "flag 0 1",
        "flag 1 0",
    )


def test_game_that_is_over_has_no_scored_actions() -> None:
    assert GAME.scored_actions(GAME.decode("+1\n11")) == ()
    assert GAME.scored_actions(GAME.decode("*1\n.1")) == ()


def test_policy_may_name_the_reveal_and_the_flag_of_every_cell() -> None:
    assert GAME.actions(GAME.decode("1F")) == ("reveal 0 0", "reveal 0 1", "flag 0 0", "flag 0 1")


def test_observation_has_headers_and_hides_mines_and_right_flags() -> None:
    assert GAME.observe(GAME.decode("+f1\nF+.\n2..")) == ("  0 1 2\n0 . F 1\n1 F . .\n2 2 . .")


def test_observation_of_more_than_ten_columns_stays_in_line() -> None:
    board = ["." * 11] * 2
    assert GAME.observe(GAME.decode("\n".join(board))) == (
        "    0  1  2  3  4  5  6  7  8  9 10\n"
        " 0  .  .  .  .  .  .  .  .  .  .  .\n"
        " 1  .  .  .  .  .  .  .  .  .  .  ."
    )


@FIXED
@given(boards(), st.integers(0, 2**32))
def test_observation_is_equal_for_all_mines_that_agree_with_what_is_open(
    board: str, seed: int
) -> None:
    # Hidden mines are moved to hidden cells that touch no number.
    cells = {(r, c): s for r, line in enumerate(board.split("\n")) for c, s in enumerate(line)}
    free = [
        (r, c)
        for (r, c), symbol in cells.items()
        if symbol in ".+fF"
        and not any(
            cells.get((r + i, c + j), ".").isdigit() for i in (-1, 0, 1) for j in (-1, 0, 1)
        )
    ]
    symbols = [cells[cell] in "+F" for cell in free]
    moved = np.random.default_rng(seed).permutation(symbols)
    for cell, is_mine in zip(free, moved, strict=True):
        cells[cell] = (".+", "fF")[cells[cell] in "fF"][bool(is_mine)]
    cols = board.index("\n") if "\n" in board else len(board)
    text = "".join(cells.values())
    other = "\n".join(text[start : start + cols] for start in range(0, len(text), cols))
    assert GAME.observe(GAME.decode(other)) == GAME.observe(GAME.decode(board))
