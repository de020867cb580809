"""The rules of Minesweeper, its text, its parser, its generator, and what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import PuzzleError
from cast_ray.games import GAMES, get_game
from cast_ray.games.base import Effect, ParseFailure, Status
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.minesweeper_start import start_state
from cast_ray.generators import GENERATORS
from cast_ray.generators.minesweeper import generate_minesweeper
from tests.minefields import boards
from tests.rooms import FIXED, symmetric_forms

GAME = Minesweeper()


def after(text: str, *actions: str) -> str:
    """Return the board after some actions, each of which must change it."""
    state = GAME.decode(text)
    for action in actions:
        transition = GAME.apply(state, action)
        assert (transition.effect, transition.feedback) == (Effect.CHANGED, "")
        state = transition.state
    return GAME.encode(state)


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
    with pytest.raises(ValueError, match="action must be 'reveal R C' or 'flag R C'"):
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
    ("text", "message"),
    [
        ("", "the board is empty at row 0, column 0"),
        ("\n", "the board is empty at row 0, column 0"),
        ("+..\n..", "ragged at row 1, column 2: the row has 2 cells and row 0 has 3"),
        ("+..\n....", "ragged at row 1, column 3"),
        ("+..\n\n", "ragged at row 1, column 0"),
        ("+..\n.? ", "unknown symbol '?' at row 1, column 1"),
        ("+..\n.9.", "unknown symbol '9' at row 1, column 1"),
        ("+..\r\n...", "unknown symbol '\\r' at row 0, column 3"),
        ("+..\n.2.", "the count 2 at row 1, column 1 is wrong: the number of mines around it is 1"),
        ("...\n.F1\n..0", "the count 0 at row 2, column 2 is wrong"),
        ("*.\n.*", "a second mine that was hit (*) at row 1, column 1"),
        ("+F\n+*", "the board has no safe cell in rows 0 to 1, columns 0 to 1"),
    ],
)
def test_broken_board_is_refused_with_row_and_column(text: str, message: str) -> None:
    with pytest.raises(PuzzleError, match=re.escape(message)):
        GAME.decode(text)


def test_start_opens_the_first_click_by_flood_fill() -> None:
    state = start_state(3, 4, mines=[(0, 3), (2, 0)], first_click=(0, 0))
    assert GAME.encode(state) == "001+\n111.\n+..."
    number = start_state(3, 4, mines=[(0, 3), (2, 0)], first_click=(1, 1))
    assert GAME.encode(number) == "...+\n.1..\n+..."


@pytest.mark.parametrize(
    ("shape", "mines", "first_click", "message"),
    [
        ((0, 4), [], (0, 0), "a board of 0 rows and 4 columns has no cell"),
        ((2, 2), [(2, 0)], (0, 0), "row 2, column 0 is not on the board"),
        ((2, 2), [(0, -1)], (0, 0), "row 0, column -1 is not on the board"),
        ((2, 2), [(1, 1)], (0, 2), "row 0, column 2 is not on the board"),
        ((2, 2), [(1, 1), (1, 1)], (0, 0), "the mine at row 1, column 1 is given twice"),
        ((2, 2), [(1, 1)], (1, 1), "the first click at row 1, column 1 hits a mine"),
        ((1, 2), [(0, 0), (0, 1), (0, 0)], (0, 0), "the mine at row 0, column 0 is given twice"),
    ],
)
def test_impossible_start_is_refused_with_row_and_column(
    shape: tuple[int, int],
    mines: list[tuple[int, int]],
    first_click: tuple[int, int],
    message: str,
) -> None:
    with pytest.raises(PuzzleError, match=re.escape(message)):
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
    with pytest.raises(PuzzleError, match="tier mini: 17 mines do not fit on 5 x 5 cells"):
        generate_minesweeper(tier, np.random.default_rng(0))


def test_tier_that_every_click_wins_is_refused() -> None:
    tier = replace(GAME.tiers["mini"], num_pieces=0)
    with pytest.raises(PuzzleError, match="the first click won each of 1000 boards"):
        generate_minesweeper(tier, np.random.default_rng(0))
