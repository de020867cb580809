"""Minesweeper as text: the parser, boards written and read back, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, ParseFailure
from cast_ray.games.minesweeper import Minesweeper
from tests.support.minefields import boards
from tests.support.refusals import refused
from tests.support.rooms import FIXED, symmetric_forms

GAME = Minesweeper()


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ("reveal 1 2", "reveal 1 2"),
        ("flag 0 5", "flag 0 5"),
        ("REVEAL 1 2", "reveal 1 2"),
        ("Flag\n 1\t2", "flag 1 2"),
        ("action\nreveal 1 2", "reveal 1 2"),
        ("I reveal 1 2, then flag 3 4.", "reveal 1 2"),
        ("reveal one, reveal 3 4", "reveal 3 4"),
        ("reveal 007 00", "reveal 7 0"),
        ("reveal 99 100", "reveal 99 100"),
    ],
)
def test_first_action_inside_the_last_block_counts(content: str, action: str) -> None:
    assert GAME.parse(f"```flag 9 9```\nI go.\n```{content}```") == action


@pytest.mark.parametrize(
    "content",
    ["reveal", "reveal 1", "reveal 1,2", "reveal -1 2", "unreveal 1 2", "reveal ١ ٢", "open 1 2"],
)
def test_other_content_is_an_unknown_action(content: str) -> None:
    failure = GAME.parse(f"```{content}```")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("Unknown action. End with ```reveal R C```")


def test_answer_without_a_fence_has_no_action() -> None:
    failure = GAME.parse("reveal 1 2")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("No action found. End with ```reveal R C```")


def test_numbers_of_thousands_of_digits_are_off_the_board() -> None:
    action = GAME.parse(f"```reveal {'9' * 20_000} {'0' * 20_000}1```")
    assert isinstance(action, str)
    assert action == f"reveal {'9' * 20_000} 1"
    transition = GAME.apply(GAME.decode("+."), action)
    assert transition.effect is Effect.ILLEGAL
    assert len(transition.feedback) < 100


@FIXED
@given(st.text(st.sampled_from("` \nrevalfgREVALFG0123-,\0")) | st.text(st.characters()))
def test_parsing_never_raises_and_gives_canonical_actions_only(answer: str) -> None:
    action = GAME.parse(answer)
    if not isinstance(action, ParseFailure):
        GAME.apply(GAME.decode("+."), action)


@FIXED
@given(boards())
def test_decode_reads_back_what_encode_writes(board: str) -> None:
    state = GAME.decode(board)
    assert GAME.encode(state) == board
    again = GAME.decode(GAME.encode(state))
    assert again == state
    assert hash(again) == hash(state)


@FIXED
@given(boards(), st.lists(st.integers(0, 49), max_size=30))
def test_play_keeps_the_mines_and_every_state_can_be_written(
    board: str, choices: list[int]
) -> None:
    state = GAME.decode(board)
    for choice in choices:
        actions = GAME.actions(state)
        action = actions[choice % len(actions)]
        transition = GAME.apply(state, action)
        assert (transition.effect is Effect.CHANGED) == (transition.state != state)
        if action.startswith("reveal"):
            assert (transition.effect is Effect.CHANGED) == (action in GAME.scored_actions(state))
        assert transition.state.layout is state.layout
        assert not transition.state.revealed & transition.state.flags
        assert not state.revealed & ~transition.state.revealed
        state = transition.state
        assert GAME.decode(GAME.encode(state)) == state


@FIXED
@given(boards())
def test_canonical_text_is_equal_for_all_symmetric_forms_and_is_one_of_them(board: str) -> None:
    unflagged = board.translate(str.maketrans("fF", ".+"))
    forms = symmetric_forms(unflagged)
    assert {GAME.canonical(GAME.decode(form)) for form in forms} == {min(forms)}
    assert GAME.canonical(GAME.decode(board)) == min(forms)


def test_canonical_text_tells_open_cells_and_mines_apart() -> None:
    texts = ("+..", "+1.", ".+.", "1+.")
    assert len({GAME.canonical(GAME.decode(text)) for text in texts}) == len(texts)


def test_a_newline_at_the_end_is_allowed() -> None:
    assert GAME.decode("+.\n") == GAME.decode("+.")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("empty", "row 0, column 0")),
        ("\n", ("empty", "row 0, column 0")),
        ("+..\n..", ("ragged", "row 1, column 2", "2 cells", "row 0")),
        ("+..\n....", ("ragged", "row 1, column 3")),
        ("+..\n\n", ("ragged", "row 1, column 0")),
        ("+..\n.? ", ("'?'", "row 1, column 1")),
        ("+..\n.9.", ("'9'", "row 1, column 1")),
        ("+..\r\n...", ("'\\r'", "row 0, column 3")),
        ("+..\n.2.", ("count 2", "row 1, column 1", "1 mines")),
        ("...\n.F1\n..0", ("count 0", "row 2, column 2")),
        ("*.\n.*", ("(*)", "row 1, column 1")),
        ("+F\n+*", ("no safe cell", "rows 0 to 1, columns 0 to 1")),
    ],
)
def test_broken_board_is_refused_with_row_and_column(text: str, facts: tuple[str, ...]) -> None:
    with refused(PuzzleError, *facts):
        GAME.decode(text)
