"""The rules of Rush Hour, its text, and what it refuses."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import PuzzleError
from cast_ray.games import GAMES, get_game
from cast_ray.games.game import Effect, ParseFailure, Status
from cast_ray.games.rush_hour import RushHour
from tests.support.play import board_after
from tests.support.refusals import refused
from tests.support.rooms import FIXED
from tests.support.rush_hour_boards import boards, relabelled

GAME = RushHour()
BOARD = (
    "..B..."  #
    "..BCCC"
    "AAB..."
    "D..x.."
    "D..EE."
    "D....."
)


after = partial(board_after, GAME)


def rows(text: str) -> list[str]:
    return [text[start : start + 6] for start in range(0, 36, 6)]


def row_two(row: str) -> str:
    """Return a board that is empty but for row 2."""
    return "." * 12 + row + "." * 18


def test_plus_is_right_or_down_and_minus_is_left_or_up() -> None:
    assert rows(after(BOARD, "E+1"))[4] == "D...EE"
    assert rows(after(BOARD, "E-2"))[4] == "DEE..."
    assert [row[2] for row in rows(after(BOARD, "B+3"))] == [*"...BBB"]
    assert [row[2] for row in rows(after(BOARD, "B+3", "B-2"))] == [*".BBB.."]


def test_a_vehicle_slides_several_cells_in_one_action() -> None:
    assert after(row_two("AA...."), "A+4") == row_two("....AA")
    assert after(row_two("...AAA"), "A-3") == row_two("AAA...")


@pytest.mark.parametrize(
    ("action", "feedback"),
    [
        ("A+1", "A+1: vehicle B is in the way."),
        ("A+4", "A+4: vehicle B is in the way."),
        ("A-1", "A-1: the edge of the board is in the way."),
        ("B-1", "B-1: the edge of the board is in the way."),
        ("B+4", "B+4: the edge of the board is in the way."),  # it could slide by 3
        ("C-1", "C-1: vehicle B is in the way."),
        ("C+1", "C+1: the edge of the board is in the way."),  # no step into the next row
        ("D-2", "D-2: vehicle A is in the way."),
        ("E+2", "E+2: the edge of the board is in the way."),
        ("E-3", "E-3: vehicle D is in the way."),  # it could slide by 2: all or nothing
        ("B+99", "B+99: the edge of the board is in the way."),
    ],
)
def test_blocked_slide_changes_nothing_and_says_why(action: str, feedback: str) -> None:
    state = GAME.decode(BOARD)
    transition = GAME.apply(state, action)
    assert transition.effect is Effect.INEFFECTIVE
    assert transition.state is state
    assert transition.feedback == feedback


def test_wall_stops_a_vehicle() -> None:
    state = GAME.decode(row_two("AA.x.."))
    assert GAME.apply(state, "A+2").feedback == "A+2: a wall is in the way."
    assert GAME.apply(state, "A+1").effect is Effect.CHANGED


def test_unknown_vehicle_is_invalid_and_changes_nothing() -> None:
    state = GAME.decode(BOARD)
    transition = GAME.apply(state, "Q+1")
    assert transition.effect is Effect.INVALID
    assert transition.state is state
    assert transition.feedback == "Q+1: there is no vehicle Q."


@pytest.mark.parametrize("action", ["", "A", "A+", "A+0", "A+02", "a+1", "A+100", "A +1", "A+1\n"])
def test_action_in_another_spelling_is_a_programming_error(action: str) -> None:
    with pytest.raises(ValueError, match=r"action.*letter"):
        GAME.apply(GAME.decode(BOARD), action)


def test_game_is_won_when_the_red_car_touches_the_right_edge() -> None:
    assert GAME.status(GAME.decode(row_two("....AA"))) is Status.WON
    assert GAME.status(GAME.decode(row_two("...AAA"))) is Status.WON
    assert GAME.status(GAME.decode(row_two("...AA."))) is Status.PLAYING


def test_red_car_that_can_never_leave_is_not_lost_by_the_rules() -> None:
    assert GAME.status(GAME.decode(row_two("AA.x.."))) is Status.PLAYING
    assert GAME.status(GAME.decode(row_two("AA..BB"))) is Status.PLAYING


def test_scored_actions_are_slides_that_fit_by_letter_minus_first_shorter_first() -> None:
    assert GAME.scored_actions(GAME.decode(BOARD)) == ("B+1", "B+2", "B+3", "E-1", "E-2", "E+1")
    assert GAME.scored_actions(GAME.decode(row_two(".AA..."))) == ("A-1", "A+1", "A+2", "A+3")
    assert GAME.scored_actions(GAME.decode(row_two("xAABBx"))) == ()


def test_actions_are_all_slides_by_one_to_four_of_the_vehicles_on_the_board() -> None:
    state = GAME.decode(row_two("AACC.."))
    assert GAME.actions(state) == (
        *("A-1", "A-2", "A-3", "A-4", "A+1", "A+2", "A+3", "A+4"),
        *("C-1", "C-2", "C-3", "C-4", "C+1", "C+2", "C+3", "C+4"),
    )


def test_observation_is_the_board_with_the_exit_then_all_vehicles() -> None:
    assert GAME.observe(GAME.decode(BOARD)) == (
        "Board:\n"
        "..B...\n"
        "..BCCC\n"
        "AAB...>\n"
        "D..x..\n"
        "D..EE.\n"
        "D.....\n"
        "Vehicles:\n"
        "A horizontal (2, 0) (2, 1)\n"
        "B vertical (0, 2) (1, 2) (2, 2)\n"
        "C horizontal (1, 3) (1, 4) (1, 5)\n"
        "D vertical (3, 0) (4, 0) (5, 0)\n"
        "E horizontal (4, 3) (4, 4)"
    )


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ("A+2", "A+2"),
        ("a+2", "A+2"),
        ("b-1", "B-1"),
        ("C+", "C+1"),
        ("c -", "C-1"),
        (" A + 2 ", "A+2"),
        ("[A+2]", "A+2"),
        ("(A +2)", "A+2"),
        ("<A><+><2>", "A+2"),
        ("{ [ a ] - ( 3 ) }", "A-3"),
        ("action\nZ+1", "Z+1"),
        ("A+002", "A+2"),
        ("A+7", "A+7"),
        ("A+99", "A+99"),
        ("A+100", "A+99"),
        ("A+" + "9" * 10_000, "A+99"),
        ("X+1", "X+1"),
    ],
)
def test_action_is_read_in_any_spelling(content: str, action: str) -> None:
    assert GAME.parse(f"I slide.\n```{content}```") == action


@pytest.mark.parametrize(
    "content",
    ["A", "2", "+2", "A2", "AA+2", "A+2.", "A+2 B+1", "A+1 2", "A++2", "A+-2", "A=2", "A−2"],
)
def test_other_content_is_an_unknown_action(content: str) -> None:
    failure = GAME.parse(f"```{content}```")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("Unknown action. End with a letter, a sign and a number")


@pytest.mark.parametrize("content", ["Ä+2", "\u017f+1", "\u212a+1", "A+\u0662", "A+²", "\uff21+2"])
def test_letters_and_digits_of_other_scripts_are_unknown(content: str) -> None:
    assert isinstance(GAME.parse(f"```{content}```"), ParseFailure)


@pytest.mark.parametrize("content", ["A+0", "a-000", "[A + 0]"])
def test_slide_of_no_cells_is_invalid(content: str) -> None:
    failure = GAME.parse(f"```{content}```")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("A slide of 0 cells is no action.")


def test_answer_without_a_fence_has_no_action() -> None:
    failure = GAME.parse("A+2")
    assert isinstance(failure, ParseFailure)
    assert failure.feedback.startswith("No action found. End with a letter")


@pytest.mark.parametrize("filling", [" ", "[", "0", "A", "+"])
def test_a_very_long_answer_is_read_at_once(filling: str) -> None:
    for answer in (f"```A+{filling * 200_000}!```", f"```{filling * 200_000}A+1```"):
        GAME.parse(answer)  # a backtracking match would outlast the test's time-out


@FIXED
@given(st.text(st.sampled_from("` \n[](){}<>AabxZ+-0129\0")) | st.text(st.characters()))
def test_parsing_never_raises_and_gives_canonical_actions_only(answer: str) -> None:
    action = GAME.parse(answer)
    if isinstance(action, str):
        GAME.apply(GAME.decode(BOARD), action)  # refuses any other spelling


def test_board_is_read_in_one_line_or_in_six_with_o_or_dots_for_empty() -> None:
    in_lines = "\n".join(rows(BOARD))
    state = GAME.decode(BOARD)
    for text in (BOARD + "\n", in_lines, in_lines + "\n", BOARD.replace(".", "o")):
        assert GAME.decode(text) == state
    assert GAME.encode(state) == BOARD


def test_letters_may_be_left_out_and_x_and_o_in_capitals_are_vehicles() -> None:
    board = row_two("AAX.O.")[:18] + "..X.O." + "." * 12
    assert GAME.decode(board).layout.letters == "AOX"
    assert GAME.encode(GAME.decode(board)) == board


@FIXED
@given(boards())
def test_decode_reads_back_what_encode_writes(board: str) -> None:
    state = GAME.decode(board)
    assert GAME.encode(state) == board
    again = GAME.decode(GAME.encode(state))
    assert again == state
    assert hash(again) == hash(state)


@FIXED
@given(boards(), st.data())
def test_play_keeps_the_layout_and_only_scored_actions_change_the_state(
    board: str, data: st.DataObject
) -> None:
    state = GAME.decode(board)
    for _ in range(8):
        action = data.draw(st.sampled_from(GAME.actions(state)))
        transition = GAME.apply(state, action)
        assert (transition.effect is Effect.CHANGED) == (action in GAME.scored_actions(state))
        assert (transition.effect is Effect.CHANGED) == (transition.state != state)
        assert transition.state.layout is state.layout
        state = transition.state
        assert GAME.decode(GAME.encode(state)) == state


@FIXED
@given(boards())
def test_every_slide_can_be_taken_back(board: str) -> None:
    state = GAME.decode(board)
    for action in GAME.scored_actions(state):
        back = action.translate(str.maketrans("+-", "-+"))
        assert GAME.apply(GAME.apply(state, action).state, back).state == state


@FIXED
@given(boards(), st.integers(0, 1000))
def test_canonical_text_is_equal_for_all_labels_and_is_one_of_them(board: str, seed: int) -> None:
    canonical = GAME.canonical(GAME.decode(board))
    assert GAME.canonical(GAME.decode(relabelled(board, seed))) == canonical
    assert GAME.canonical(GAME.decode(canonical)) == canonical
    shape = str.maketrans("BCDEFGHIJKLMNOPQRSTUVWXYZ", "B" * 25)
    assert canonical.translate(shape) == board.translate(shape)


def test_canonical_letters_follow_the_order_of_first_cells() -> None:
    board = (
        "..Q..."  #
        "..QZZZ"
        "AAQ..."
        "Bx...."
        "B....."
        "BCC..."
    )
    assert GAME.canonical(GAME.decode(board)) == (
        "..B..."  #
        "..BCCC"
        "AAB..."
        "Dx...."
        "D....."
        "DEE..."
    )


def test_a_reflected_board_is_another_puzzle() -> None:
    upside_down = "".join(reversed(rows("......" + BOARD[:30])))
    assert GAME.canonical(GAME.decode(BOARD)) != upside_down


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("6 x 6", "row 0, column 0")),
        ("\n", ("6 x 6", "row 0, column 0")),
        ("." * 12 + "AA", ("row 2, column 2",)),
        (row_two("AA....")[:35], ("row 5, column 5",)),
        (row_two("AA....") + ".", ("row 6, column 0",)),
        (row_two("AA....")[:30], ("row 5, column 0",)),
        ("\n".join(rows(BOARD)[:2]), ("rows 0 to 1, columns 0 to 5", "3 to 8")),
        ("\n".join(["AA......."] * 3), ("rows 0 to 2, columns 0 to 8", "3 to 8")),
        ("\n".join(rows(BOARD)) + "\n\n", ("row 6, column 0",)),
        ("......\n......\nAA...", ("row 2, column 5",)),
        ("......\n......\nAA.....", ("row 2, column 6",)),
        (row_two("AA.?.."), ("'?'", "row 2, column 3")),
        (row_two("AA.b.."), ("'b'", "row 2, column 3")),
        (row_two("AA.Ä.."), ("'Ä'", "row 2, column 3")),
        ("\r\n".join(rows(BOARD)), ("'\\r'", "row 0, column 6")),
        (row_two("......"), ("no red car A", "rows 0 to 5, columns 0 to 5")),
        ("A.....A....." + "." * 24, ("red car A", "upright", "row 0, column 0")),
        ("." * 8 + "A.....A....." + "." * 16, ("red car A", "upright", "row 1, column 2")),
        ("." * 19 + "AA" + "." * 15, ("red car A", "exit", "row 3, column 1")),
        (row_two("AA..B."), ("vehicle B", "single", "row 2, column 4")),
        (row_two("A....."), ("vehicle A", "single", "row 2, column 0")),
        ("BB....B....." + row_two("AA....")[12:], ("vehicle B", "bent", "row 1, column 0")),
        (".B....BB...." + row_two("AA....")[12:], ("vehicle B", "bent", "row 1, column 1")),
        ("BB....BB...." + row_two("AA....")[12:], ("vehicle B", "bent", "row 1, column 0")),
        ("BB.B........" + row_two("AA....")[12:], ("vehicle B", "split")),
        ("BB.BB......." + row_two("AA....")[12:], ("vehicle B", "split", "row 0, column 3")),
        ("BB.........B" + row_two("AA....")[12:], ("vehicle B", "split", "row 1, column 5")),
        (".....BB....." + row_two("AA....")[12:], ("vehicle B", "split", "row 1, column 0")),
        ("BBBB........" + row_two("AA....")[12:], ("vehicle B", "4 cells", "row 0, column 3")),
        (row_two("AAAAA."), ("vehicle A", "5 cells", "row 2, column 3")),
    ],
)
def test_broken_board_is_refused_with_row_and_column(text: str, facts: tuple[str, ...]) -> None:
    with refused(PuzzleError, *facts):
        GAME.decode(text)


@FIXED
@given(st.text(st.sampled_from(".xoAB\n"), max_size=42) | st.text(st.characters()))
def test_any_text_is_a_board_or_a_puzzle_error(text: str) -> None:
    try:
        state = GAME.decode(text)
    except PuzzleError as error:
        assert re.search(r"rows? \d.*, columns? \d", str(error))
    else:
        assert GAME.encode(state) == text.replace("\n", "").replace("o", ".")


def test_rules_are_short_and_name_every_symbol() -> None:
    words = GAME.rules.split()
    assert len(words) < 100
    assert {".", "x", "A", ">", "(-)", "(+)"} <= {word.strip(",") for word in words}
    assert GAME.parse(GAME.rules) == "A+2"


def test_tiers_are_those_of_the_specification() -> None:
    tiers = {
        name: (tier.num_pieces, tier.min_cost, tier.max_cost, tier.turn_budget)
        for name, tier in GAME.tiers.items()
    }
    assert tiers == {
        "id": (7, 6, 8, 20),
        "unseen": (9, 7, 9, 20),
        "mini": (4, 2, 4, 8),
        "mini-unseen": (5, 4, 5, 10),
    }
    assert {(tier.rows, tier.cols) for tier in GAME.tiers.values()} == {(6, 6)}


def test_game_is_found_by_name() -> None:
    assert get_game("rush_hour") is GAMES["rush_hour"]
