"""Imports: every layout that other people use, every fault named by its place, ours the cost."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cast_ray.datasets.build import BuildProgress
from cast_ray.datasets.importing import ImportReport, format_import, import_puzzles
from cast_ray.errors import EnvironmentSetupError, PuzzleError
from cast_ray.games import GAMES, get_game
from cast_ray.games.collections.files import read_board_files
from cast_ray.games.game import Tier
from cast_ray.games.generators import PuzzleSource
from cast_ray.games.puzzles import Puzzle, read_puzzles, write_puzzles
from cast_ray.games.text import BoardText

ROOM = "######\n#____#\n#_X__#\n#__O_#\n#P___#\n######"  # N = 6
OTHER = "######\n#____#\n#PX_O#\n#____#\n######\n######"  # N = 2
HARD = "######\n#P___#\n#__X_#\n#__#_#\n#O___#\n######"  # N = 10, more than the tier's
MIRRORED = "######\n#____#\n#__X_#\n#_O__#\n#___P#\n######"  # ROOM from the other side
RUSH = "BB....C..D..CAAD..C..D..E...FFE.GGG."
FIVE_BY_FIVE = Tier(
    name="mini",
    rows=5,
    cols=5,
    num_pieces=3,
    turn_budget=12,
    min_cost=1,
    max_cost=12,
    cost_may_be_infinite=True,
)
needs_rush_hour = pytest.mark.skipif("rush_hour" not in GAMES, reason="Rush Hour is not in yet")
needs_minesweeper = pytest.mark.skipif(
    "minesweeper" not in GAMES, reason="Minesweeper is not in yet"
)


def parquet(tmp_path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path = tmp_path / "given.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def text(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "given.txt"
    path.write_text(content)
    return path


def imported(
    file: Path,
    *,
    tier: str = "mini",
    skip_broken: bool = False,
    exclude: Sequence[Path] = (),
    keep_repeats: bool = False,
) -> ImportReport:
    """Import Sokoban boards."""
    return import_puzzles(
        file,
        PuzzleSource(game="sokoban", tier=tier, seed=0),
        out=file.parent / "new" / "out.parquet",
        skip_broken=skip_broken,
        progress=BuildProgress(Console(file=StringIO())),
        exclude=exclude,
        keep_repeats=keep_repeats,
    )


def written(report: ImportReport) -> list[Puzzle]:
    return read_puzzles(report.out)


def given(path: Path, game: str = "sokoban") -> list[BoardText]:
    return list(read_board_files(path, get_game(game), FIVE_BY_FIVE))


def test_boards_with_costs_are_imported_with_cost_and_measures_of_our_solver(
    tmp_path: Path,
) -> None:
    rows = [{"board": ROOM, "cost_to_go": 6}, {"board": OTHER, "cost_to_go": 2}]
    report = imported(parquet(tmp_path, rows))
    assert (report.num_written, report.num_compared, report.differences) == (2, 2, [])
    puzzles = written(report)
    assert [(p.board, p.cost_to_go, p.seed) for p in puzzles] == [(ROOM, 6, 0), (OTHER, 2, 0)]
    assert puzzles[0].measures["pushes"] == 2
    assert "2 given costs compared with our solver's: 0 differ" in format_import(report)


def test_wrong_cost_is_listed_and_ours_is_kept(tmp_path: Path) -> None:
    rows = [{"board": ROOM, "cost_to_go": 5}, {"board": OTHER, "cost_to_go": None}]
    report = imported(parquet(tmp_path, rows))
    assert [p.cost_to_go for p in written(report)] == [6, 2]
    assert report.num_compared == 1
    assert "1 differ, ours is used\n  row 0: given 5, ours 6\n" in format_import(report)


def test_file_of_ours_is_imported_again(tmp_path: Path) -> None:
    first = written(imported(parquet(tmp_path, [{"board": ROOM}])))
    again = tmp_path / "again"
    again.mkdir()
    write_puzzles(again / "ours.parquet", first)
    report = imported(again / "ours.parquet")
    assert (written(report), report.num_compared, report.differences) == (first, 1, [])


def test_seeds_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match=r"seeds.*cast-ray data build"):
        imported(parquet(tmp_path, [{"room_seed": 3, "index": 0}]))


def test_columns_without_boards_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match=r"size, level.*board"):
        imported(parquet(tmp_path, [{"size": 3, "level": 0}]))


def test_missing_file_and_file_without_boards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match=r"none.txt.*No such file"):
        imported(tmp_path / "none.txt")
    with pytest.raises(PuzzleError, match=r"given.txt.*at least one"):
        imported(text(tmp_path, "; only a comment\n\n"))


def test_faults_are_named_by_row_and_place_and_nothing_is_written(tmp_path: Path) -> None:
    rows = [
        {"board": ROOM},
        {"board": ROOM.replace("O", "?")},
        {"board": None},
        {"board": MIRRORED},
        {"board": "P_XO"},
        {"board": ROOM.replace("_X", "__").replace("O", "*")},
        {"board": "######\n#X___#\n#____#\n#__O_#\n#P___#\n######"},
        {"board": OTHER},
    ]
    report = imported(parquet(tmp_path, rows))
    assert report.num_written == 0
    assert not report.out.parent.exists()
    assert Counter(fault.kind for fault in report.faults) == {
        "broken": 2,
        "repeated": 1,
        "of another size": 1,
        "over at the start": 1,
        "of a cost that the tier does not have": 1,
    }
    lines = format_import(report).splitlines()
    assert lines[0].startswith("8 ")
    assert lines[2].startswith("  row 1: unknown symbol '?' at row 3, column 3")
    assert lines[3].startswith("  row 2: board is None and not text")
    assert re.search(r"row 3: .*row 0\b", lines[4])
    assert re.search(r"row 4: 1 x 4 .*\bmini .* 6 x 6 ", lines[5])
    assert re.search(r"row 5: .*over", lines[6])
    assert re.search(r"row 6: .*infinite.*\bmini .* 2 to 6\b", lines[7])
    assert "nothing was written" in lines[-1]
    assert "--skip-broken" in lines[-1]


def test_faults_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    rows = [{"board": ROOM.replace("O", "?")}, {"board": ROOM}, {"board": MIRRORED}]
    report = imported(parquet(tmp_path, rows), skip_broken=True)
    assert [p.board for p in written(report)] == [ROOM]
    assert format_import(report).endswith(f"1 puzzles written to {report.out}")


def test_boards_of_other_files_are_excluded_up_to_symmetry(tmp_path: Path) -> None:
    file = parquet(tmp_path, [{"board": MIRRORED}, {"board": OTHER}])
    test = tmp_path / "test.xsb"
    test.write_text(f"; 1\n{ROOM.translate(str.maketrans('PXO_', '@$. '))}\n")
    report = imported(file, skip_broken=True, exclude=[test])
    assert [p.board for p in written(report)] == [OTHER]
    assert f"row 0: it is in {test}" in format_import(report)


def test_a_published_set_is_kept_as_it_is_where_that_is_asked_for(tmp_path: Path) -> None:
    boards = [ROOM, MIRRORED, OTHER, ROOM, HARD]
    file = parquet(tmp_path, [{"board": one} for one in boards])
    assert "its cost is 10" in format_import(imported(file))
    assert [p.board for p in written(imported(file, keep_repeats=True))] == boards


def test_titles_become_a_column_and_old_files_have_none(tmp_path: Path) -> None:
    file = tmp_path / "given.xsb"
    file.write_text(f"{ROOM}\nTitle: The first\n\n{OTHER}\n")
    report = imported(file)
    assert [p.title for p in written(report)] == ["The first", ""]
    pq.write_table(pq.read_table(report.out).drop_columns("title"), tmp_path / "old.parquet")
    assert [p.title for p in read_puzzles(tmp_path / "old.parquet")] == ["", ""]


def test_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    file = parquet(tmp_path, [{"board": ROOM}])
    first = imported(file)
    before = first.out.read_bytes()
    with pytest.raises(PuzzleError, match=r"out.parquet exists.*--out"):
        imported(file)
    assert first.out.read_bytes() == before


def test_usual_symbols_and_ours_give_the_same_board(tmp_path: Path) -> None:
    usual = ROOM.translate(str.maketrans("PXO_", "@$. "))
    content = f"; 1\n{usual}\n\n\n{usual.replace(' ', '-')}\n; ours\n{ROOM}\n"
    assert [(each.place, each.text) for each in given(text(tmp_path, content))] == [
        ("level 1, line 2", ROOM),
        ("level 2, line 10", ROOM),
        ("level 3, line 17", ROOM),
    ]


def test_all_usual_symbols_are_known(tmp_path: Path) -> None:
    (board,) = given(text(tmp_path, "#######\n#+$*. #\n#######\n"))
    assert board.text == "#######\n#SX*O_#\n#######"


def test_what_is_outside_of_a_room_becomes_wall_and_open_floor_inside_stays(
    tmp_path: Path,
) -> None:
    content = "  ####\n###  #\n#@$ .#\n######\n"
    (board,) = given(text(tmp_path, content))
    assert board.text == "######\n###__#\n#PX_O#\n######"


def test_faults_in_text_are_named_by_line_and_place(tmp_path: Path) -> None:
    report = imported(text(tmp_path, f"{OTHER}\n\n#####\n#@ !#\n#####\n"))
    assert [fault.place for fault in report.faults] == ["level 2, line 8"]
    assert report.faults[0].reason.startswith("unknown symbol '!' at row 1, column 3")


def test_rush_hour_lines_may_have_moves_in_front_and_states_behind(tmp_path: Path) -> None:
    content = f"# a list\n{RUSH}\n6 {RUSH}\n\n07 {RUSH} 2332\none two three\n"
    boards = given(text(tmp_path, content), "rush_hour")
    assert [(each.place, each.text, each.cost) for each in boards[:3]] == [
        ("line 2", RUSH, None),
        ("line 3", RUSH, 6.0),
        ("line 5", RUSH, 7.0),
    ]
    assert boards[3].fault == "3 words at column 0: give one board"


@pytest.mark.parametrize(
    ("board", "cost"), [("board", "optimal_moves"), ("board_config", "min_moves_optimal")]
)
def test_both_rush_hour_layouts_are_read(tmp_path: Path, board: str, cost: str) -> None:
    (row,) = given(parquet(tmp_path, [{board: RUSH, cost: 6}]), "rush_hour")
    assert (row.text, row.cost) == (RUSH, 6.0)


@needs_rush_hour
def test_rush_hour_boards_are_checked_and_solved(tmp_path: Path) -> None:
    board = "FDDoooFoBBEEAAooGoooooGoooooCoooooCo"
    rows = [{"board": board, "optimal_moves": 6}, {"board": board[:-1], "optimal_moves": 6}]
    report = import_puzzles(
        parquet(tmp_path, rows),
        PuzzleSource(game="rush_hour", tier="id", seed=0),
        out=tmp_path / "out.parquet",
        skip_broken=True,
        progress=BuildProgress(Console(file=StringIO())),
    )
    assert [fault.place for fault in report.faults] == ["row 1"]
    assert (report.differences, written(report)[0].cost_to_go) == ([], 6)


@needs_minesweeper
@pytest.mark.parametrize("mines", ["mines", "mine_positions"])
def test_both_minesweeper_layouts_give_the_board_with_its_first_click_opened(
    tmp_path: Path, mines: str
) -> None:
    row = {mines: [[0, 0], [0, 4], [4, 4]], "first_click": [2, 2]}
    (board,) = given(parquet(tmp_path, [row]), "minesweeper")
    game = get_game("minesweeper")
    shown = game.observe(game.decode(board.text)).split("\n")[1:]
    assert [line.split()[1:] for line in shown] == [
        [".", "1", "0", "1", "."],
        ["1", "1", "0", "1", "1"],
        ["0", "0", "0", "0", "0"],
        ["0", "0", "0", "1", "1"],
        ["0", "0", "0", "1", "."],
    ]
    assert board.cost is None


@needs_minesweeper
def test_minesweeper_null_is_an_infinite_cost(tmp_path: Path) -> None:
    row = {"rows": 3, "cols": 4, "mines": [[0, 0]], "first_click": [2, 2]}
    rows = [row | {"cost_to_go": None}, row | {"cost_to_go": 3.0}]
    costs = [each.cost for each in given(parquet(tmp_path, rows), "minesweeper")]
    assert costs == [math.inf, 3.0]


@needs_minesweeper
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"mines": [[0, 0], [5, 1]]}, "row 5, column 1 is not on the board: rows are 0 to 4"),
        ({"mines": [[0, 0], [0, 0]]}, "the mine at row 0, column 0 is given twice"),
        ({"first_click": [0, 0]}, "the first click at row 0, column 0 hits a mine"),
        ({"first_click": [1, 2, 3]}, "first_click is a list of 3: give its [row, column]"),
        ({"mines": None}, '"mines" is missing or null: give a list of [row, column]'),
    ],
)
def test_minesweeper_faults_are_named(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    row = {"mines": [[0, 0]], "first_click": [2, 2]} | change
    (board,) = given(parquet(tmp_path, [row]), "minesweeper")
    assert board.fault.startswith(fault)


@pytest.mark.parametrize(
    "value",
    ["[" * 5000, "9" * 5001, "[[0, 0], [1e999999999, 0]]"],
    ids=["brackets", "digits", "exponent"],
)
def test_mines_that_nobody_can_read_are_a_fault_of_their_row(tmp_path: Path, value: str) -> None:
    row = {"mines": value, "first_click": "[2, 2]"}
    (board,) = given(parquet(tmp_path, [row]), "minesweeper")
    assert "mine" in board.fault


def test_size_beyond_every_board_is_a_fault_of_its_row(tmp_path: Path) -> None:
    row = {"rows": 10**9, "cols": 10**9, "mines": [[0, 0]], "first_click": [2, 2]}
    (board,) = given(parquet(tmp_path, [row]), "minesweeper")
    assert "rows" in board.fault


@pytest.mark.parametrize(
    "board", ["++...\n++...\n.....\n.....\n.....", "++200\n++200\n221f0\n00000\n00000"]
)
def test_minesweeper_board_in_play_or_untouched_is_no_start(tmp_path: Path, board: str) -> None:
    path = text(tmp_path, board)
    source = PuzzleSource(game="minesweeper", tier="mini", seed=0)
    report = import_puzzles(
        path,
        source,
        out=tmp_path / "out.parquet",
        skip_broken=False,
        progress=BuildProgress(Console(file=StringIO())),
    )
    assert [fault.kind for fault in report.faults] == ["not at its start"]


def test_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    file = parquet(tmp_path, [{"board": ROOM}])
    source = PuzzleSource(game="sokoban", tier="mini", seed=0)
    with pytest.raises(EnvironmentSetupError, match=r"parquet.*space"):
        import_puzzles(
            file,
            source,
            out=file / "out.parquet",
            skip_broken=False,
            progress=BuildProgress(Console(file=StringIO())),
        )
