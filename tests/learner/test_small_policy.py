"""The small policy's tokenizer: every board cell is one token, whatever a game draws it with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.games import get_game
from cast_ray.learner.small_policy import build_tokenizer
from tests.support.rooms import FIXED

ROOM = "######\n#__O_#\n#_*__#\n#__X_#\n#_P__#\n######"


def tokens(text: str, *, cells: str) -> list[str]:
    """Return the pieces of a text; each is a token of a tokenizer that has often seen it."""
    tokenizer = build_tokenizer([text] * 50, cells=cells, vocab_size=512)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    return [tokenizer.decode([token]) for token in ids]


@pytest.mark.parametrize(
    "rows",
    [
        ["#_OX*PS", "PX#____"],  # Sokoban
        [".oo.o", "o...o", "ooooo"],  # Lights Out
        ["..AA.x", "BBox.C", "xx.x.x"],  # Rush Hour, with o for empty
        [".+fF01", "23+.*f", "....++"],  # Minesweeper, mines shown
        ["■□■■", "□□□■"],  # beyond ASCII
        ["x x o", "o x .", ". . ."],  # with spaces between
        ["(:)", ",,:", "((,"],  # what sentences are made of
        ["-|>^", "~~%@", "--$$"],
    ],
    ids=lambda rows: rows[0],
)
def test_every_board_cell_is_one_token(rows: list[str]) -> None:
    board = "\n".join(rows)
    found = tokens(f"Board:\n{board}\nSteps left: 3", cells=board)
    assert found[2 : 2 + len(board)] == list(board)


@FIXED
@given(st.lists(st.text(".xof+#AB12 (", min_size=1, max_size=6), min_size=1, max_size=4))
def test_any_board_of_such_cells_is_cut_into_its_cells(rows: list[str]) -> None:
    board = "\n".join(rows)
    assert tokens(board, cells=board) == list(board)


def test_symbols_stand_alone_also_where_only_the_observation_has_them() -> None:
    board = "..F1\n+-..\n2..F\n>>.8"
    assert tokens(board, cells="xm") == list(board)


def test_words_stay_whole_beside_cells_of_small_letters() -> None:
    text = "Size: 6 x 6\nBlocked by a box of wood.\nox"
    assert tokens(text, cells="xof.") == [
        *("Size: ", "6", " ", "x", " ", "6", "\n"),
        *("Blocked by a box of wood.", "\n", "o", "x"),
    ]


def test_texts_of_sokoban_are_cut_as_they_always_were() -> None:
    game = get_game("sokoban")
    observation = game.observe(game.decode(ROOM))
    assert tokens(observation, cells=ROOM)[:24] == [
        *("Size: ", "6", " ", "x ", "6", "\n"),
        *("Targets: (", "1", ", ", "3", ") (", "2", ", ", "2", ")\n"),
        *("Boxes off target: (", "3", ", ", "3", ")\n"),
        *("Boxes on target: (", "2", ", ", "2"),
    ]
    rules = tokens(game.rules, cells=ROOM)
    assert rules[:4] == ["You play ", "Sokoban. ", "Push every box onto a target. ", "Symbols: "]
    assert rules[4:8] == ["#", " ", "wall, ", "_"]
    assert rules[-4:] == ["```", "Up", "```", "."]
