"""Boards of other people: one reader per game takes what collections on the web look like."""

from __future__ import annotations

import codecs
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.collections.files import read_board_files
from cast_ray.games.json_state import read_state
from cast_ray.games.text import BoardText
from tests.support.refusals import refused
from tests.support.rooms import FIXED, rooms

SOKOBAN, RUSH_HOUR = get_game("sokoban"), get_game("rush_hour")
ROOM = "######\n#P_XO#\n######"
USUAL = ROOM.translate(str.maketrans("PXO_", "@$. "))
PARKED = "..B...\n..BCCC\nAAB...\nD..x..\nD..EE.\nD....."


def levels(text: str) -> list[tuple[str, str]]:
    """Return title and board of each level."""
    return [(level.title, level.text) for level in SOKOBAN.read_boards(text)]


def lists(text: str) -> list[BoardText]:
    return list(RUSH_HOUR.read_boards(text))


def refusal_of(board: str) -> str:
    with pytest.raises(PuzzleError) as caught:
        SOKOBAN.decode(board)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        (f"; 1\n\n{USUAL}\n\n; 2\n\n{USUAL}\n", ["1", "2"]),
        (f"Title: all\nAuthor: me\n\n; 1\n\n{USUAL}\n\n; 2\n\n{USUAL}\n", ["1", "2"]),
        (f"{USUAL}\nTitle: one\nAuthor: me\n\n{USUAL}\nTitle: two\nComment: x\n", ["one", "two"]),
        (f"Title: one\n\n{USUAL}\n\nTitle: two\n\n{USUAL}\n", ["one", "two"]),
        (f"'first'\n{USUAL}\n\nLevel 2\n{USUAL}\n", ["first", "Level 2"]),
        (f"{USUAL}\nfirst\n\n{USUAL}\nsecond\n", ["first", "second"]),
        (f"; 0\n{USUAL}\n\n; 1\n{USUAL}", ["0", "1"]),
        (f"[0]\n{ROOM}\n\n[1]\n{ROOM}\n", ["0", "1"]),
        (f"A file of rooms.\n\n{USUAL}\n\n\n{USUAL}\n", ["", ""]),
        (f"Set: x\nDate: 2001-02-03\n\n{USUAL}\n", [""]),
        (f"One\n\n{USUAL}\n\nTwo\n\n{USUAL}\n", ["One", "Two"]),  # as SOK files have it
        (f"; 44\n'Duh!'\n\n{USUAL}\n", ["Duh!"]),
        (f"{USUAL}\nabout it\n\nTwo\n\n{USUAL}\n", ["about it", "Two"]),
    ],
)
def test_levels_have_the_titles_of_their_collection(text: str, titles: list[str]) -> None:
    assert levels(text) == [(title, ROOM) for title in titles]
    assert levels(text.replace("\n", "\r\n")) == [(title, ROOM) for title in titles]


@pytest.mark.parametrize(
    "text",
    [
        USUAL.replace(" ", "-"),
        USUAL.replace(" ", "_"),
        "   " + USUAL.replace("\n", "\n   "),  # indented
        USUAL.replace("\n", "   \n") + "  ",  # trailing blanks
        "--------\n-" + USUAL.replace(" ", "-").replace("\n", "-\n-") + "-\n--------",
        "6#|#@ $.#|6#",
        "6#|#@-$.#|6#|",
        "6#\n#@ $.#\n6#",
        "2(3#)|#@ $.#|3(2#)",
        "######\n#p b.#\n######",
        "6#|#p-b.#|6#",
        f"{USUAL}\n\n{'-' * 30}\n",
    ],
)
def test_every_way_to_write_a_room_gives_the_same_puzzle(text: str) -> None:
    assert [board for _, board in levels(text)] == [ROOM]


def test_what_lies_outside_of_the_walls_does_not_change_a_puzzle() -> None:
    blank = "  #####\n###   #\n#@ $. #\n#######"
    for text in (
        blank,
        blank.replace("  #####", "--#####"),
        blank.replace("  #####", "__#####"),
        blank.replace("  #####", "#######"),
        "          \n " + blank.replace("\n", "  \n "),
        blank.replace("  #####", "__#####_") + "\n________",
    ):
        assert levels(text) == [("", "#######\n###___#\n#P_XO_#\n#######")]


def test_a_pocket_of_ours_stays_as_it_is_written() -> None:
    text = "#######\n#P_XO##\n#####_#\n#######"
    assert levels(text) == [("", text)]
    assert levels(text.replace("_", " ").replace("P", "@").replace("X", "$").replace("O", "."))[0][
        1
    ] == text.replace("#####_#", "#######")


@pytest.mark.parametrize(
    ("text", "place", "facts"),
    [
        (f"{USUAL}\n\n{USUAL.replace('@', ' ')}", "level 2, line 5", ("no player",)),
        (f"{USUAL}\n\n{USUAL.replace(' ', '@')}", "level 2, line 5", ("2 players",)),
        (f"{USUAL}\n\n{USUAL.replace(' ', '%')}", "level 2, line 5", ("'%'", "row 1, column 2")),
        (f"{USUAL}\n\n{USUAL.replace('.', ' ')}", "level 2, line 5", ("1 boxes and 0 targets",)),
    ],
)
def test_a_faulty_level_is_named_by_its_number_and_line(
    text: str, place: str, facts: tuple[str, ...]
) -> None:
    _, faulty = SOKOBAN.read_boards(text)
    assert faulty.place == place
    with refused(PuzzleError, *facts):
        SOKOBAN.decode(faulty.text)


@FIXED
@given(rooms())
def test_a_closed_room_of_ours_is_read_as_it_is(text: str) -> None:
    rows = text.split("\n")
    closed = "\n".join(["#" * (len(rows[0]) + 2), *(f"#{row}#" for row in rows)])
    closed += "\n" + "#" * (len(rows[0]) + 2)
    assert levels(closed) == [("", closed)]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("999(999(999(999(#))))@$.", ""),
        ("9999999#@$ ", "1 boxes and 0 targets"),
        ("#" * 101 + "\n" + "@$.\n" * 100, "10201 cells, more than 10000"),
        ("1(" * 5000 + "#", ""),
    ],
)
def test_no_level_fills_the_memory(text: str, fact: str) -> None:
    faults = [level.fault or refusal_of(level.text) for level in SOKOBAN.read_boards(text)]
    assert all(fact in fault for fault in faults)
    assert bool(faults) == bool(fact)


@FIXED
@given(st.text(st.sampled_from("#@$.* \n_-|1(;aT:=")))
def test_no_text_stops_the_reader(text: str) -> None:
    for level in SOKOBAN.read_boards(text):
        assert level.text
    for board in RUSH_HOUR.read_boards(text):
        assert bool(board.text) != bool(board.fault)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_names_of_any_age_are_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(f"Übung\n{USUAL}\n".encode(encoding))
    [board] = read_board_files(tmp_path / "a.txt", SOKOBAN)
    assert (board.title, board.text) == ("Übung", ROOM)


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b/000.txt", "a/001.txt", "a/000.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"; {name}\n{USUAL}\n")
    boards = list(read_board_files(tmp_path, SOKOBAN))
    assert [board.title for board in boards] == ["a/000.txt", "a/001.txt", "b/000.txt"]
    assert boards[0].place == "a/000.txt, line 2"


def test_a_table_for_verl_has_its_boards_in_a_record(tmp_path: Path) -> None:
    rows = [
        {
            "data_source": "sokoban",
            "prompt": [{"role": "user", "content": "Solve it."}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": 0, "board": ROOM, "optimal_moves": 1},
        }
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    [board] = read_board_files(tmp_path / "a.parquet", SOKOBAN)
    assert (board.text, board.cost) == (ROOM, 1.0)


@pytest.mark.parametrize("content", [b"\0\1\2", codecs.BOM_UTF8 + b"no boards here\n", b""])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with refused(PuzzleError, "a.bin", "board"):
        list(read_board_files(tmp_path / "a.bin", SOKOBAN))


@pytest.mark.parametrize(
    "text",
    [
        PARKED,
        PARKED.replace("\n", ""),
        PARKED.replace("A", "X"),
        PARKED.replace("A", "r"),
        PARKED.replace("A", "X").replace("x", "#").replace("D", "A"),
        PARKED.replace("A", "R").lower().replace("x", "#"),
        "..b...\n..bppp\nxxb...\nq..#..\nq..cc.\nq.....",
        PARKED.replace(".", "_"),
        PARKED.replace(".", "0"),
        PARKED.replace(".", "o"),
    ],
)
def test_every_way_to_park_the_cars_gives_the_same_board(text: str) -> None:
    [board] = lists(f"; Jam 1\n{text}\n")
    state = RUSH_HOUR.decode(board.text)
    assert RUSH_HOUR.canonical(state) == RUSH_HOUR.canonical(RUSH_HOUR.decode(PARKED))


def test_rush_hour_boards_of_other_sizes_have_lines() -> None:
    text = "AA....B\n......B\n......."
    [board] = lists(text)
    assert RUSH_HOUR.encode(RUSH_HOUR.decode(board.text)) == text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("5#|#@$x.#|6#", "unknown symbol 'x' at row 1, column 3"),
        ("#####\n#@$.H\n#####", "unknown symbol 'H' at row 1, column 4"),
        ("####H\n#@$.#\n#####", "unknown symbol 'H' at row 0, column 4"),
    ],
)
def test_a_slip_in_a_level_is_named_and_the_level_not_lost(text: str, place: str) -> None:
    [_, level] = SOKOBAN.read_boards(f"{USUAL}\n\n{text}\n")
    assert place in refusal_of(level.text)


def test_levels_of_other_games_are_no_sokoban() -> None:
    [level, last] = SOKOBAN.read_boards(
        f"{USUAL}\nTitle: hex\nGame: Hexoban\n\n{USUAL}\nGame: Sokoban"
    )
    assert "Hexoban" in level.fault
    assert not last.fault


def test_one_board_is_read_as_in_files() -> None:
    asked = read_state(RUSH_HOUR, PARKED.replace("AA", "XX").replace("\n", ""))
    assert RUSH_HOUR.encode(asked.state) == PARKED.replace("\n", "")
    assert read_state(SOKOBAN, "\ufeff" + USUAL).state == SOKOBAN.decode(ROOM)


def test_several_boards_in_place_of_one_are_counted() -> None:
    with refused(PuzzleError, "2 boards: give one"):
        read_state(SOKOBAN, f"{USUAL}\n\n{USUAL}")
