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
from tests.support.refusals import refused

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


SIZES = [(None, "null"), (0, " 0"), (-3, "-3"), (3.0, "3.0"), (True, "True"), ("3", "'3'")]
EXTENT = "rows 0 to 2, columns 0 to 3"


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        *(({"rows": size}, ['"rows"', shown, "1024"]) for size, shown in SIZES),
        ({"cols": 10**4000}, ['"cols"', "1000", "1024"]),
        ({"rows": 1000, "cols": 1000}, ["1000000", "1024"]),
        ({"mines": None}, ['"mines"', "null", "[row, column]"]),
        ({"mines": {"0": 3}}, ['"mines"', "object", "[row, column]"]),
        ({"mines": [[0, 3], [2]]}, ["mine 1", "list of 1", "[row, column]"]),
        ({"mines": [[0, 3, 1]]}, ["mine 0", "list of 3"]),
        ({"mines": [3]}, ["mine 0", " 3"]),
        ({"mines": ["03"]}, ["mine 0", "'03'"]),
        ({"mines": [[0, 1.0]]}, ["mine 0", "[0, 1.0]"]),
        ({"mines": [[False, 1]]}, ["mine 0", "[False, 1]"]),
        ({"mines": [[0, None]]}, ["mine 0", "[0, ", "null]"]),
        ({"mines": [[0, 4]]}, ["row 0, column 4", "0 to 2", "0 to 3"]),
        ({"mines": [[-1, 0]]}, ["row -1, column 0", "0 to 2", "0 to 3"]),
        ({"mines": [[0, 10**4000]]}, ["mine 0", "[0, 1000"]),
        ({"mines": [[0, 3], [0, 3]]}, ["mine", "row 0, column 3"]),
        ({"mines": [[0, 3]] * 13}, ["13 mines", "12 cells", EXTENT]),
        ({"mines": [[row, col] for row in range(3) for col in range(4)]}, ["safe", EXTENT]),
        ({"revealed": None, "flags": None}, ['"revealed"', '"first_click"']),
        ({"revealed": None}, ['"revealed"', '"first_click"']),
        ({"first_click": [0, 0]}, ['"first_click"', '"revealed"']),
        ({"first_click": [0, 0], "revealed": None}, ['"first_click"', '"flags"']),
        ({"board": ["..."]}, ['"board"', '"rows"']),
        ({"revealed": ["0000"] * 2}, ['"revealed"', "2 rows", "row 2", "3 rows of 4"]),
        ({"revealed": ["0000"] * 4}, ['"revealed"', "4 rows", "row 3", "3 rows of 4"]),
        ({"revealed": ["0000", "000", "0000"]}, ['"revealed"', "row 1, column 3"]),
        ({"revealed": ["0000", "00000", "0000"]}, ['"revealed"', "row 1, column 4"]),
        ({"revealed": ["0000", "0020", "0000"]}, ['"revealed"', "'2'", "row 1, column 2"]),
        ({"flags": ["0000", "0000", "00٠0"]}, ['"flags"', "'٠'", "row 2, column 2"]),
        ({"flags": ["0000", 7, "0000"]}, ['"flags"', "row 1", "7"]),
        ({"flags": "000000000000"}, ['"flags"', "'000000000000'"]),
        ({"flags": ["0100", "0000", "0000"]}, ["flag", "row 0, column 1"]),
        ({"revealed": ["0001", "0000", "1000"], "flags": None}, ["mine", "row 2, column 0"]),
    ],
    ids=range(38),
)
def test_impossible_minefield_is_refused_on_one_short_line(
    changes: dict[str, Any], facts: list[str]
) -> None:
    with refused(PuzzleError, *facts) as caught:
        state_of(**field(**changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("click", "facts"),
    [
        ([0, 3], ["first click", "row 0, column 3"]),
        ([3, 0], ["row 3, column 0"]),
        ([0], ["first_click", "list of 1"]),
        ("00", ["first_click", "'00'"]),
    ],
)
def test_impossible_first_click_is_refused(click: Any, facts: list[str]) -> None:
    with refused(PuzzleError, *facts):
        state_of(**field(revealed=None, flags=None, first_click=click))


def test_missing_board_names_both_forms_of_minesweeper() -> None:
    with refused(PuzzleError, '"board"', "rows, cols, mines, revealed"):
        state_of(game="minesweeper")


def test_minesweeper_keys_mean_nothing_to_other_games() -> None:
    with pytest.raises(PuzzleError, match=r'"board"(?!.*mines)'):
        state_of(**{**field(), "game": "sokoban"})
