"""The rules of Sokoban, its text, and what it refuses."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import GAMES, get_game
from cast_ray.games.game import Effect, ParseFailure, Status
from cast_ray.games.sokoban import ACTIONS, Sokoban
from tests.support.play import board_after
from tests.support.refusals import refused
from tests.support.rooms import FIXED, rooms, symmetric_forms

GAME = Sokoban()


after = partial(board_after, GAME)


def test_player_walks_in_all_directions() -> None:
    room = "___X\n_P_O\n____"
    assert after(room, "Up") == "_P_X\n___O\n____"
    assert after(room, "Down") == "___X\n___O\n_P__"
    assert after(room, "Left") == "___X\nP__O\n____"
    assert after(room, "Right") == "___X\n__PO\n____"


def test_player_pushes_one_box_onto_and_off_targets() -> None:
    assert after("PXO_", "Right") == "_P*_"
    assert after("PXO_", "Right", "Right") == "__SX"
    assert after("O_\nX_\nP_", "Up") == "*_\nP_\n__"


def test_player_on_a_target_is_shown_and_leaves_the_target() -> None:
    assert after("PO_X", "Right") == "_S_X"
    assert after("PO_X", "Right", "Right") == "_OPX"


def test_boxes_stay_in_ascending_order_when_one_is_pushed_past_another() -> None:
    state = GAME.decode("_P__\n_X_X\n_OO_")
    assert state.boxes == (5, 7)
    assert GAME.apply(state, "Down").state.boxes == (7, 9)


@pytest.mark.parametrize(
    ("room", "action", "feedback"),
    [
        ("#P_XO", "Left", "Left: a wall is in the way."),
        ("P_XO", "Up", "Up: a wall is in the way."),
        ("P_XO", "Down", "Down: a wall is in the way."),
        ("P_XO", "Left", "Left: a wall is in the way."),
        ("_O\nXP", "Right", "Right: a wall is in the way."),  # no step into the next row
        ("PX#O", "Right", "Right: a wall is behind the box."),
        ("O_\nPX\n__", "Right", "Right: a wall is behind the box."),
        ("PX*O_", "Right", "Right: another box is behind the box."),
    ],
)
def test_blocked_action_changes_nothing_and_says_why(room: str, action: str, feedback: str) -> None:
    state = GAME.decode(room)
    transition = GAME.apply(state, action)
    assert transition.effect is Effect.INEFFECTIVE
    assert transition.state is state
    assert transition.feedback == feedback


def test_unknown_action_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match=r"action.*Up, Down, Left, Right.*'up'"):
        GAME.apply(GAME.decode("PXO"), "up")


def test_room_is_won_when_every_box_is_on_a_target() -> None:
    assert GAME.status(GAME.decode("P**")) is Status.WON
    assert GAME.status(GAME.decode("PX*O")) is Status.PLAYING


def test_deadlock_is_not_lost_by_the_rules() -> None:
    assert GAME.status(GAME.decode("X_P_O")) is Status.PLAYING


def test_scored_actions_are_those_that_change_the_state() -> None:
    assert GAME.scored_actions(GAME.decode("#_#\n_PX\nO_#")) == ("Up", "Down", "Left")
    assert GAME.scored_actions(GAME.decode("PX#O")) == ()


def test_observation_lists_coordinates_then_the_board() -> None:
    room = "######\n#__O_#\n#_*__#\n#__X_#\n#_P__#\n######"
    assert GAME.observe(GAME.decode(room)) == (
        "Size: 6 x 6\n"
        "Targets: (1, 3) (2, 2)\n"
        "Boxes off target: (3, 3)\n"
        "Boxes on target: (2, 2)\n"
        "Player: (4, 2)\n"
        "Board:\n" + room
    )


def test_observation_says_none_for_an_empty_list() -> None:
    assert "Boxes off target: none\nBoxes on target: (0, 1)\n" in GAME.observe(GAME.decode("P*"))
    assert "Boxes off target: (0, 1)\nBoxes on target: none\n" in GAME.observe(GAME.decode("PXO"))


@pytest.mark.parametrize(
    ("content", "action"),
    [
        *((name, name) for name in ACTIONS),
        *((str(number), name) for number, name in enumerate(ACTIONS, start=1)),
        ("up", "Up"),
        ("DOWN", "Down"),
        ("action\nlEFT", "Left"),
        (" Right\n", "Right"),
    ],
)
def test_action_is_read_in_any_spelling(content: str, action: str) -> None:
    assert GAME.parse(f"I go.\n```{content}```") == action


@pytest.mark.parametrize("content", ["Up.", "Up Down", "go Up", "0", "5", "١", "Uр", "text"])
def test_other_content_is_an_unknown_action(content: str) -> None:
    failure = GAME.parse(f"```{content}```")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("Unknown action. End with ```Up```")


def test_answer_without_a_fence_has_no_action() -> None:
    failure = GAME.parse("Up")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("No action found. End with ```Up```")


@FIXED
@given(st.text(st.sampled_from("` \nUpDown1234\0")) | st.text(st.characters()))
def test_parsing_never_raises_and_gives_canonical_actions_only(answer: str) -> None:
    action = GAME.parse(answer)
    assert isinstance(action, ParseFailure) or action in ACTIONS


@FIXED
@given(rooms())
def test_decode_reads_back_what_encode_writes(room: str) -> None:
    state = GAME.decode(room)
    assert GAME.encode(state) == room
    again = GAME.decode(GAME.encode(state))
    assert again == state
    assert hash(again) == hash(state)


@FIXED
@given(rooms(), st.lists(st.sampled_from(ACTIONS), max_size=30))
def test_play_keeps_walls_targets_and_the_number_of_boxes(room: str, actions: list[str]) -> None:
    state = GAME.decode(room)
    for action in actions:
        transition = GAME.apply(state, action)
        assert (transition.effect is Effect.CHANGED) == (transition.state != state)
        assert transition.state.layout is state.layout
        state = transition.state
        assert GAME.decode(GAME.encode(state)) == state


@FIXED
@given(rooms())
def test_canonical_text_is_equal_for_all_symmetric_forms_and_is_one_of_them(room: str) -> None:
    forms = symmetric_forms(room)
    canonical = {GAME.canonical(GAME.decode(form)) for form in forms}
    assert canonical == {min(forms)}


def test_a_newline_at_the_end_is_allowed() -> None:
    assert GAME.decode("PXO\n") == GAME.decode("PXO")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("empty", "row 0, column 0")),
        ("\n", ("empty", "row 0, column 0")),
        ("PXO\nXO", ("ragged", "row 1, column 2", "2 cells", "row 0")),
        ("PXO\n____", ("ragged", "row 1, column 3")),
        ("PXO\n\n", ("ragged", "row 1, column 0")),
        ("PXO\n_? ", ("'?'", "row 1, column 1")),
        ("PXO\r\n___", ("'\\r'", "row 0, column 3")),
        ("_XO\n___", ("no player", "rows 0 to 1, columns 0 to 2")),
        ("PXO\n_S*", ("2 players", "row 1, column 1")),
        ("P__\n___", ("no box", "rows 0 to 1, columns 0 to 2")),
        ("PXO\n__X", ("2 boxes", "1 targets", "row 1, column 2")),
        ("SX_\n_O_", ("1 boxes", "2 targets", "row 1, column 1")),
    ],
)
def test_broken_board_is_refused_with_row_and_column(text: str, facts: tuple[str, ...]) -> None:
    with refused(PuzzleError, *facts):
        GAME.decode(text)


def test_rules_are_short_and_name_every_symbol_and_action() -> None:
    words = GAME.rules.split()
    assert len(words) < 90
    assert {"#", "_", "O", "X", "*", "P", "S", *ACTIONS} <= {word.strip(".,") for word in words}
    assert GAME.parse(GAME.rules) == "Up"


def test_tiers_are_those_of_the_specification_and_of_architecture() -> None:
    sizes = {
        name: (tier.rows, tier.cols, tier.num_pieces, tier.turn_budget)
        for name, tier in GAME.tiers.items()
    }
    assert sizes == {
        "id": (6, 6, 2, 30),
        "unseen": (7, 7, 3, 40),
        "mini": (6, 6, 1, 8),
        "mini-unseen": (6, 6, 2, 18),
    }
    assert all(tier.max_cost <= tier.turn_budget for tier in GAME.tiers.values())


def test_game_is_found_by_name_and_an_unknown_one_is_refused() -> None:
    assert get_game("sokoban") is GAMES["sokoban"]
    with pytest.raises(ConfigError, match=r"game.*sokoban.*'chess'"):
        get_game("chess")
