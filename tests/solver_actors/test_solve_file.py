"""Answers to lines of JSON: costs by the schema, errors for broken lines, nothing ever raised."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.solvers import make_lines
from cast_ray.errors import EnvironmentSetupError, PuzzleError
from cast_ray.games import game_names, get_game
from cast_ray.games.game import Status
from cast_ray.games.json_state import MAX_BOARD_CELLS, MAX_LINE_BYTES
from solver_actors.solve_file import solve_file
from tests.solver_actors.brute_force_sokoban import brute_force
from tests.support.refusals import refused
from tests.support.rooms import FIXED, long_way_round, rooms

ROOM = ["######", "#____#", "#_X__#", "#__O_#", "#P___#", "######"]


def answers(tmp_path: Path, text: str | bytes, *, with_q: bool = False) -> list[dict[str, Any]]:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    num_bad = solve_file(source, target, with_q=with_q)
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert num_bad == sum("error" in answer for answer in found)
    return found


def line(board: list[str]) -> str:
    return json.dumps({"game": "sokoban", "board": board})


def check_refused(tmp_path: Path, text: str | bytes, *facts: str) -> None:
    """Expect an error of one line that tells the facts."""
    (answer,) = answers(tmp_path, text)
    assert answer.keys() == {"error"}
    assert facts and all(fact in answer["error"] for fact in facts), answer
    assert "\n" not in answer["error"]


def test_cost_and_best_action(tmp_path: Path) -> None:
    assert answers(tmp_path, line(ROOM)) == [{"cost": 6, "best": "Up"}]


def test_q_is_the_cost_after_each_action_that_changes_the_state(tmp_path: Path) -> None:
    expected = {"cost": 6, "best": "Up", "q": {"Up": 5, "Right": 7}}
    assert answers(tmp_path, line(ROOM), with_q=True) == [expected]


def test_solved_board_costs_nothing_and_has_no_best_action(tmp_path: Path) -> None:
    assert answers(tmp_path, line(["P_*"]), with_q=True) == [
        {"cost": 0, "best": None, "q": {"Right": 0}}
    ]


def test_dead_board_says_dead_everywhere(tmp_path: Path) -> None:
    assert answers(tmp_path, line(["X_P_O"]), with_q=True) == [
        {"cost": "dead", "best": None, "q": {"Left": "dead", "Right": "dead"}}
    ]


def test_action_into_a_deadlock_is_dead_beside_finite_ones(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, line(["____", "OPX_"]), with_q=True)
    assert answer["q"]["Right"] == "dead"
    assert answer["q"]["Up"] == answer["cost"] - 1


def test_answers_come_in_order_around_a_broken_line(tmp_path: Path) -> None:
    text = "\n".join([line(["P_X_O"]), "nonsense", "", line(["P_*"])])
    found = answers(tmp_path, text)
    assert [answer.get("cost", "bad") for answer in found] == [3, "bad", "bad", 0]


def test_last_line_may_lack_its_line_break(tmp_path: Path) -> None:
    with_break, without = answers(tmp_path, line(["PXO"]) + "\n"), answers(tmp_path, line(["PXO"]))
    assert with_break == without == [{"cost": 1, "best": "Right"}]


def test_empty_file_gives_an_empty_file(tmp_path: Path) -> None:
    assert answers(tmp_path, "") == []


@pytest.mark.parametrize(
    ("board", "facts"),
    [
        (["####", "#PX?", "####"], ["'?'", "row 1, column 3"]),
        (["####", "#PXO", "###"], ["row 2, column 3"]),
        (["PXO", ""], ["row 1, column 0"]),
        (["P_XO", "__XO", "P___"], ["2 players", "row 2, column 0"]),
        (["PX_", "X_O"], ["2 boxes", "1 target", "row 1, column 0"]),
        (["PXO", "___", "_\n_"], ["'\\n'", "row 2, column 1"]),
        (["PXO", 7], ["row 1", "7"]),
        (["PXO", None], ["row 1", "null"]),
        ([], ["row 0, column 0"]),
        (["__"], ["player", "P or S"]),
        (["P_"], ["box", "X or *"]),
    ],
)
def test_broken_board_is_named_by_row_and_column(
    tmp_path: Path, board: list[Any], facts: list[str]
) -> None:
    check_refused(tmp_path, line(board), *facts)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("{", ["JSON", "column 2"]),
        ("[]", ["JSON", "list"]),
        ("7", ["JSON", "7"]),
        ("null", ["JSON", "null"]),
        ("{}", ['"game"', "null"]),
        ('{"game": 1e999, "board": []}', ['"game"', " inf"]),
        ('{"game": NaN}', ['"game"', " nan"]),
        ('{"game": "\\ud800"}', ['"game"', "'\\ud800'"]),
        ('{"game": "sokoban"}', ['"board"', "missing"]),
        ('{"game": "sokoban", "board": null}', ['"board"', "missing"]),
        ('{"game": "sokoban", "board": 7}', ['"board"', "7"]),
        ('{"game": "sokoban", "board": {"0": "PXO"}}', ['"board"', "object"]),
        ('{"game": "sokoban", "board": [["P"]]}', ["row 0", "a list"]),
        ("[" * 100_000, ["nested"]),
        ("9" * 5000, ["number"]),
        ("{" + '"a":' * 3, ["JSON", "column 9"]),
        (b'"\xff\xfe"', ["UTF-8", "byte 1"]),
        ('{"game": "chess", "board": []}', ['"game"', "'chess'", ", ".join(game_names())]),
    ],
    ids=range(18),
)
def test_broken_line_is_an_error_in_words(
    tmp_path: Path, text: str | bytes, facts: list[str]
) -> None:
    check_refused(tmp_path, text, *facts)


def test_line_beyond_the_limit_is_refused_and_the_next_one_read(tmp_path: Path) -> None:
    long = " " * (2 * MAX_LINE_BYTES + 3)
    found = answers(tmp_path, f"{long}\n{line(['PXO'])}\n{long}")
    assert [answer.get("cost", "bad") for answer in found] == ["bad", 1, "bad"]
    assert str(MAX_LINE_BYTES) in found[0]["error"]


def test_board_too_large_for_a_table_gets_its_cost(tmp_path: Path) -> None:
    board = ["P" + "_" * 99, "__XO__XO__XO" + "_" * 88, *["_" * 100] * 98]
    assert answers(tmp_path, line(board), with_q=True) == [
        {"cost": 15, "best": "Down", "q": {"Down": 14, "Right": 14}}
    ]


def test_board_too_large_for_a_table_may_be_dead_by_proof(tmp_path: Path) -> None:
    board = ["X" * 40 + "O" * 40, "P" + "_" * 79]
    assert answers(tmp_path, line(board)) == [{"cost": "dead", "best": None}]


def test_board_too_hard_to_solve_is_unknown_beside_boards_with_a_cost(tmp_path: Path) -> None:
    free = ["_" * 100] * 47
    hard = ["P" + "_" * 99, "_" * 100, "_X" * 5 + "_" * 90, *free, *free, "O_" * 5 + "_" * 90]
    text = "\n".join([line(["P_X_O"]), line(hard), line(["PXO"])])
    assert [answer["cost"] for answer in answers(tmp_path, text)] == [3, "unknown", 1]


def test_maze_of_very_many_steps_gets_its_cost(tmp_path: Path) -> None:
    board = long_way_round(num_stairs=19, num_folds=8).split("\n")
    assert answers(tmp_path, line(board)) == [{"cost": 36_189, "best": "Right"}]


def test_board_with_too_many_cells_is_refused(tmp_path: Path) -> None:
    rows = ["X" * MAX_BOARD_CELLS, "O" * MAX_BOARD_CELLS]
    check_refused(tmp_path, line(rows), str(2 * MAX_BOARD_CELLS), f" {MAX_BOARD_CELLS}")


@FIXED
@given(rooms())
def test_costs_equal_brute_force(tmp_path_factory: pytest.TempPathFactory, board: str) -> None:
    expected = brute_force(board)[board]
    (answer,) = answers(tmp_path_factory.mktemp("solve"), line(board.split("\n")), with_q=True)
    assert answer["cost"] == ("dead" if expected == float("inf") else expected)
    if answer["best"] is not None:
        assert answer["q"][answer["best"]] == answer["cost"] - 1


def test_rush_hour_board_is_one_text(tmp_path: Path) -> None:
    board = "............AA.B.....B.............."
    text = json.dumps({"game": "rush_hour", "board": board})
    assert answers(tmp_path, text) == [{"cost": 2, "best": "B-2"}]


def test_minesweeper_q_holds_reveals_and_no_lifting_of_flags(tmp_path: Path) -> None:
    mines = {"rows": 1, "cols": 4, "mines": [[0, 2]], "revealed": ["1000"]}
    found = answers(tmp_path, minefield(**mines, flags=["0100"]), with_q=True)
    lifted = answers(tmp_path, minefield(**mines), with_q=True)
    # K with the flag: lift it, reveal it, then the last cell.
    assert found == [{"cost": 3, "best": "flag 0 1", "q": {"reveal 0 2": "dead", "reveal 0 3": 2}}]
    assert lifted[0]["q"] == {"reveal 0 1": 1, "reveal 0 2": "dead", "reveal 0 3": 1}


def test_lost_minesweeper_state_is_dead(tmp_path: Path) -> None:
    text = minefield(rows=1, cols=3, mines=[[0, 2]], revealed=["001"])
    assert answers(tmp_path, text, with_q=True) == [{"cost": "dead", "best": None, "q": {}}]


def test_minesweeper_board_beyond_the_solver_is_an_error(tmp_path: Path) -> None:
    text = minefield(rows=9, cols=9, mines=[[0, 0]], first_click=[8, 8])
    check_refused(tmp_path, text, "81", "64")


def test_states_in_random_order_get_the_answers_that_they_get_alone(tmp_path: Path) -> None:
    lines = make_lines(num_states=60, states_per_puzzle=5)
    together = answers(tmp_path, "\n".join(lines), with_q=True)
    assert together == [answers(tmp_path, text, with_q=True)[0] for text in lines]
    assert len({answer["cost"] for answer in together}) > 10


def minefield(**keys: object) -> str:
    return json.dumps({"game": "minesweeper", **keys})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
BOARDS = JSON | st.lists(st.text("#_OX*PS\n ?", max_size=6) | JSON, max_size=6)
REQUESTS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "game": st.sampled_from(["sokoban", "minesweeper", "rush_hour"]) | JSON,
        "board": BOARDS,
        "rows": st.integers(1, 3) | JSON,
        "cols": st.integers(1, 3) | JSON,
        "mines": st.lists(st.lists(st.integers(0, 2), max_size=2), max_size=3) | JSON,
        "revealed": st.lists(st.text("01", max_size=3), max_size=3) | JSON,
        "first_click": st.lists(st.integers(0, 2), max_size=2) | JSON,
    },
)


@FIXED
@given(st.lists(REQUESTS, max_size=6))
def test_any_json_gets_one_answer_a_line(
    tmp_path_factory: pytest.TempPathFactory, requests: list[Any]
) -> None:
    text = "\n".join(json.dumps(request) for request in requests)
    found = answers(tmp_path_factory.mktemp("solve"), text, with_q=True)
    assert len(found) == len(requests)
    assert all(answer.keys() in ({"error"}, {"cost", "best", "q"}) for answer in found)


@FIXED
@given(st.binary(max_size=300))
def test_any_bytes_get_one_answer_a_line(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    found = answers(tmp_path_factory.mktemp("solve"), text)
    assert len(found) == (text.removesuffix(b"\n").count(b"\n") + 1 if text else 0)
    assert all(answer.keys() == {"error"} for answer in found)


def test_missing_input_is_named_and_leaves_the_output_alone(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("kept")
    with refused(PuzzleError, "in.jsonl", "No such file"):
        solve_file(tmp_path / "in.jsonl", target, with_q=False)
    assert target.read_text() == "kept"


def test_output_below_a_file_is_named(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(line(["PXO"]))
    with refused(EnvironmentSetupError, "in.jsonl"):
        solve_file(source, source / "out.jsonl", with_q=False)


def test_full_disk_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(line(["PXO"]))
    (tmp_path / "full").symlink_to("/dev/full")
    with refused(EnvironmentSetupError, "full", "No space left on device"):
        solve_file(source, tmp_path / "full", with_q=False)


def test_output_may_replace_the_input(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    path.write_text(line(["PXO"]))
    assert solve_file(path, path, with_q=False) == 0
    assert json.loads(path.read_text())["cost"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["both.jsonl"]


def test_output_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    source, real, link = (tmp_path / name for name in ("in.jsonl", "real", "link"))
    source.write_text(line(["PXO"]))
    real.write_text("")
    link.symlink_to(real)
    solve_file(source, link, with_q=False)
    assert link.is_symlink()
    assert json.loads(real.read_text())["cost"] == 1


XSB = "####\n#@ ###\n#  $.#\n######"


def boards_answered(tmp_path: Path, text: str, game: str) -> list[dict[str, Any]]:
    (tmp_path / "boards.txt").write_text(text)
    solve_file(tmp_path / "boards.txt", tmp_path / "out.jsonl", game=game, with_line=True)
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def test_boards_of_a_file_are_answered_with_place_title_and_a_line_that_solves(
    tmp_path: Path,
) -> None:
    text = f"; easy\n{XSB}\n\n; broken\n{XSB.replace('.', ' ')}\n\n; done\n#####\n#@*$.#\n#####\n"
    easy, broken, last = boards_answered(tmp_path, text, "sokoban")
    assert (easy["place"], easy["title"], easy["cost"]) == ("level 1, line 2", "easy", 3)
    game = get_game("sokoban")
    [board, *_] = game.read_boards(text)
    state = game.decode(board.text)
    for action in easy["line"]:
        state = game.apply(state, action).state
    assert game.status(state) is Status.WON
    assert len(easy["line"]) == 3
    assert broken.keys() == {"place", "title", "error"}
    assert last["title"] == "done"


def test_a_line_of_json_takes_a_board_in_the_usual_symbols_too(tmp_path: Path) -> None:
    rows = XSB.split("\n")
    whole = {"game": "sokoban", "board": XSB}
    assert answers(tmp_path, json.dumps(whole)) == [{"cost": 3, "best": "Down"}]
    assert answers(tmp_path, line(rows)) == [{"cost": 3, "best": "Down"}]
    check_refused(tmp_path, line([XSB.replace("@", " ")]), "unknown symbol '\\n'")


VIEW = {"game": "minesweeper", "visible": ["1.", "2.", ".."], "num_mines": 2}


def test_what_a_player_sees_gets_probabilities_and_the_safest_cell(tmp_path: Path) -> None:
    # Of the layouts with two mines, 1 and 2 leave: one of the two cells on the right is a mine,
    # and one of the two below; so brute force counts.
    cells = [(0, 1), (1, 1), (2, 0), (2, 1)]
    layouts = [
        pair
        for pair in combinations(cells, 2)
        if sum(c in ((0, 1), (1, 1)) for c in pair) == 1
        and sum(c in ((0, 1), (1, 1), (2, 0), (2, 1)) for c in pair) == 2
    ]
    expected = [
        [None, sum((0, 1) in pair for pair in layouts) / len(layouts)],
        [None, sum((1, 1) in pair for pair in layouts) / len(layouts)],
        [sum((2, c) in pair for pair in layouts) / len(layouts) for c in (0, 1)],
    ]
    [answer] = answers(tmp_path, json.dumps(VIEW))
    assert answer == {"cost": "unknown", "best": answer["best"], "mine_probabilities": expected}
    text = "mines: 2\n1#\n2?\n  \n"
    [of_file] = boards_answered(tmp_path, text, "minesweeper")
    assert of_file == {"place": "line 2"} | answer


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"num_mines": None}, '"num_mines" is missing'),
        ({"num_mines": 9}, "room for 0 to 4"),
        ({"board": "1."}, '"visible" and "board" are both given'),
        ({"mines": [[0, 0]]}, '"visible" and "mines" are both given'),
        ({"visible": ["1.", "2"]}, "ragged"),
        ({"visible": 3}, "a list of rows"),
        ({"game": "sokoban"}, "sokoban hides nothing"),
    ],
)
def test_faulty_views_are_refused(changes: dict[str, Any], fact: str, tmp_path: Path) -> None:
    check_refused(tmp_path, json.dumps(VIEW | changes), fact)


def test_a_file_without_a_board_of_the_game_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "text.txt").write_text("There is no level here.\n")
    with refused(PuzzleError, "text.txt", "no board of Sokoban"):
        solve_file(tmp_path / "text.txt", tmp_path / "out.jsonl", game="sokoban")
    assert not (tmp_path / "out.jsonl").exists()
