"""Lines of ``solve`` become states: each form of a board, and what is refused about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.json_state import parse_request
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.minesweeper_board import start_state

GAME = Minesweeper()
FIELD = {
    "rows": 3,
    "cols": 4,
    "mines": [[0, 3], [2, 0]],
    "revealed": ["0110", "0000", "0001"],
    "flags": ["0000", "1000", "1000"],
}
PARKED = "...........BAA...B....CC............"


def state_of(**request: Any) -> Any:  # Any: each game has a state type of its own
    return parse_request(json.dumps(request).encode()).state


def field(**changes: Any) -> dict[str, Any]:
    """Return the example with other values; None leaves a key out."""
    whole = {"game": "minesweeper", **FIELD, **changes}
    return {key: value for key, value in whole.items() if value is not None}


@pytest.mark.parametrize(
    ("game", "text"),
    [("sokoban", "P_X\n__O"), ("rush_hour", PARKED), ("minesweeper", ".01+\nf...\nF..0")],
)
def test_board_is_one_text_or_a_list_of_rows(game: str, text: str) -> None:
    rows = text.split("\n") if "\n" in text else [text]
    assert state_of(game=game, board=text) == state_of(game=game, board=rows)
    assert state_of(game=game, board=text) == get_game(game).decode(text)


def test_rush_hour_board_may_be_six_rows() -> None:
    rows = [PARKED[start : start + 6] for start in range(0, 36, 6)]
    assert state_of(game="rush_hour", board=rows) == state_of(game="rush_hour", board=PARKED)


def test_minefield_is_read_cell_by_cell() -> None:
    assert GAME.encode(state_of(**field())) == ".01+\nf...\nF..0"


def test_minefield_without_flags_has_none() -> None:
    assert GAME.encode(state_of(**field(flags=None))) == ".01+\n....\n+..0"


def test_first_click_is_opened_by_the_rules() -> None:
    found = state_of(**field(revealed=None, flags=None, first_click=[0, 0]))
    assert found == start_state(3, 4, mines=[(0, 3), (2, 0)], first_click=(0, 0))
    assert GAME.encode(found) == "001+\n111.\n+..."


def test_revealed_mine_is_a_lost_state() -> None:
    state = state_of(**field(revealed=["0001", "0000", "0000"]))
    assert GAME.status(state).value == "lost"
    assert GAME.encode(state) == "...*\nf...\nF..."


def test_null_counts_as_missing() -> None:
    request = {**field(), "flags": None, "first_click": None, "board": None}
    assert GAME.encode(state_of(**request)) == ".01+\n....\n+..0"


def test_keys_of_no_form_are_left_alone() -> None:
    assert state_of(**field(), id=7, comment="mine") == state_of(**field())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": None}, '"rows" is missing or null: give a number from 1 to 1024'),
        ({"rows": 0}, '"rows" is 0: give'),
        ({"rows": -3}, '"rows" is -3: give'),
        ({"rows": 3.0}, '"rows" is 3.0: give'),
        ({"rows": True}, '"rows" is True: give'),
        ({"rows": "3"}, "\"rows\" is '3': give"),
        ({"cols": 10**4000}, '"cols" is 1000'),
        ({"rows": 1000, "cols": 1000}, "takes at most 1024"),
        ({"mines": None}, '"mines" is missing or null: give a list of [row, column]'),
        ({"mines": {"0": 3}}, '"mines" is an object'),
        ({"mines": [[0, 3], [2]]}, "mine 1 is a list of 1: give its [row, column]"),
        ({"mines": [[0, 3, 1]]}, "mine 0 is a list of 3"),
        ({"mines": [3]}, "mine 0 is 3"),
        ({"mines": ["03"]}, "mine 0 is '03'"),
        ({"mines": [[0, 1.0]]}, "mine 0 is [0, 1.0]"),
        ({"mines": [[False, 1]]}, "mine 0 is [False, 1]"),
        ({"mines": [[0, None]]}, "mine 0 is [0, missing or null]"),
        ({"mines": [[0, 4]]}, "row 0, column 4 is not on the board"),
        ({"mines": [[-1, 0]]}, "row -1, column 0 is not on the board"),
        ({"mines": [[0, 10**4000]]}, "mine 0 is [0, 1000"),
        ({"mines": [[0, 3], [0, 3]]}, "the mine at row 0, column 3 is given twice"),
        (
            {"mines": [[0, 3]] * 13},
            "the board has 13 mines and only 12 cells, in rows 0 to 2, columns 0 to 3",
        ),
        (
            {"mines": [[row, col] for row in range(3) for col in range(4)]},
            "no safe cell in rows 0 to 2, columns 0 to 3",
        ),
        ({"revealed": None, "flags": None}, '"revealed" and "first_click" are missing'),
        ({"revealed": None}, '"revealed" and "first_click" are missing'),
        ({"first_click": [0, 0]}, '"first_click" and "revealed" are both given'),
        ({"first_click": [0, 0], "revealed": None}, '"first_click" and "flags" are both given'),
        ({"board": ["..."]}, '"board" and "rows" are both given'),
        ({"revealed": ["0000"] * 2}, '"revealed" has 2 rows, it is too short or too long at row 2'),
        ({"revealed": ["0000"] * 4}, '"revealed" has 4 rows, it is too short or too long at row 3'),
        ({"revealed": ["0000", "000", "0000"]}, '"revealed" is ragged at row 1, column 3'),
        ({"revealed": ["0000", "00000", "0000"]}, '"revealed" is ragged at row 1, column 4'),
        ({"revealed": ["0000", "0020", "0000"]}, "'2' at row 1, column 2 of \"revealed\""),
        ({"flags": ["0000", "0000", "00٠0"]}, "'٠' at row 2, column 2 of \"flags\""),
        ({"flags": ["0000", 0, "0000"]}, 'row 1 of "flags" is 0'),
        ({"flags": "000000000000"}, "\"flags\" is '000000000000': give a list"),
        ({"flags": ["0100", "0000", "0000"]}, "the flag at row 0, column 1 is on a revealed cell"),
        ({"revealed": ["0001", "0000", "1000"], "flags": None}, "second revealed mine at row 2, "),
    ],
    ids=range(38),
)
def test_impossible_minefield_is_refused_in_a_sentence(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PuzzleError) as caught:
        state_of(**field(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("click", "message"),
    [
        ([0, 3], "first click.*row 0, column 3"),
        ([3, 0], "row 3, column 0"),
        ([0], "first_click.*list of 1"),
        ("00", "first_click.*'00'"),
    ],
)
def test_impossible_first_click_is_refused(click: Any, message: str) -> None:
    with pytest.raises(PuzzleError, match=message):
        state_of(**field(revealed=None, flags=None, first_click=click))


def test_missing_board_names_both_forms_of_minesweeper() -> None:
    with pytest.raises(PuzzleError, match=r'"board".*rows, cols, mines, revealed'):
        state_of(game="minesweeper")


def test_minesweeper_keys_mean_nothing_to_other_games() -> None:
    with pytest.raises(PuzzleError, match=r'"board"(?!.*mines)'):
        state_of(**{**field(), "game": "sokoban"})
