"""Broken boards are refused alike at every door, in one sentence that names row and column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray.datasets.build import BuildProgress
from cast_ray.datasets.importing import import_puzzles
from cast_ray.envs.gym import make_numeric_env, make_text_env
from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.generators import PuzzleSource
from cast_ray.games.json_state import parse_request
from cast_ray.games.plugins import forget_plugins
from solver_actors.solve_file import solve_file
from tests.support import installed

ROOM = "######\n#__O_#\n#__X_#\n#P_XO#\n#____#\n######"
PARKED = "......\n......\nAAB...\n..B...\n..xCCC\n......"
FIELD = "+.000\n11000\n00011\n0012+\n001+2"
LAMPS = ".....\n..o..\n.ooo.\n..o..\n....."
GOOD = {"sokoban": ROOM, "rush_hour": PARKED, "minesweeper": FIELD, "lights_out": LAMPS}

BAD = [
    ("sokoban", "second player", ROOM.replace("#____#", "#_P__#"), "row 4, column 2"),
    ("sokoban", "no player", ROOM.replace("P", "_"), "rows 0 to 5, columns 0 to 5"),
    ("sokoban", "no box", "######\n#P___#", "rows 0 to 1, columns 0 to 5"),
    ("sokoban", "box without target", ROOM.replace("O_#", "__#"), "row 3, column 3"),
    ("sokoban", "target without box", ROOM.replace("__X_", "____"), "row 3, column 4"),
    ("sokoban", "short row", ROOM.replace("#____#", "#___#"), "row 4, column 5"),
    ("sokoban", "long row", ROOM.replace("#____#", "#_____#"), "row 4, column 6"),
    ("sokoban", "unknown symbol", ROOM.replace("P", "?"), "row 3, column 1"),
    ("sokoban", "nothing", "", "row 0, column 0"),
    # Two vehicles on one cell: in a grid of letters one of them is cut in two, or bent.
    ("rush_hour", "overlap", PARKED.replace("..xCCC", "..BBCC"), "row 4, column 3"),
    ("rush_hour", "split", PARKED.replace("..xCCC", "CxxCCC"), "row 4, column 3"),
    ("rush_hour", "bent", PARKED.replace("..B...", "..BB.."), "row 3, column 3"),
    ("rush_hour", "too short", PARKED.replace("AAB", "AA."), "row 3, column 2"),
    ("rush_hour", "too long", PARKED.replace("..xCCC", "..CCCC"), "row 4, column 5"),
    ("rush_hour", "no red car", PARKED.replace("AA", ".."), "rows 0 to 5, columns 0 to 5"),
    ("rush_hour", "upright red car", PARKED.replace("AAB", "xxA").replace("..B", "..A"), "row 2"),
    (
        "rush_hour",
        "red car off its row",
        "AA....\n" + PARKED.replace("AA", "..")[7:],
        "row 0, column 0",
    ),
    ("rush_hour", "short row", PARKED.replace("..B...", "..B.."), "row 3, column 5"),
    ("rush_hour", "too few rows", PARKED[:13], "rows 0 to 1, columns 0 to 5"),
    ("rush_hour", "too many rows", PARKED + "\n......" * 3, "rows 0 to 8, columns 0 to 5"),
    ("rush_hour", "35 symbols", PARKED.replace("\n", "")[:-1], "row 5, column 5"),
    ("rush_hour", "unknown symbol", PARKED.replace("x", "%"), "row 4, column 2"),
    ("rush_hour", "nothing", "", "row 0, column 0"),
    ("minesweeper", "mines everywhere", "++\n+F", "rows 0 to 1, columns 0 to 1"),
    ("minesweeper", "wrong count", FIELD.replace("12+", "13+"), "row 3, column 3"),
    ("minesweeper", "second mine hit", "*.+\n..*", "row 1, column 2"),
    ("minesweeper", "short row", FIELD.replace("11000", "1100"), "row 1, column 4"),
    ("minesweeper", "long row", FIELD.replace("11000", "110000"), "row 1, column 5"),
    ("minesweeper", "unknown symbol", FIELD.replace("12+", "12?"), "row 3, column 4"),
    ("minesweeper", "too large", "\n".join(["." * 33] * 32), "32 rows and 33 columns"),
    ("minesweeper", "nothing", "", "row 0, column 0"),
    ("lights_out", "short row", LAMPS.replace(".ooo.", ".ooo"), "row 2, column 4"),
    ("lights_out", "unknown symbol", LAMPS.replace(".ooo.", ".oXo."), "row 2, column 2"),
    ("lights_out", "nothing", "", "row 0, column 0"),
]
"""Game, fault, board, and where the message must say it is."""

Door = Callable[[str, str], None]
"""Takes a game and a board, and raises PuzzleError if it does not let the board in."""


def by_decode(game: str, board: str) -> None:
    get_game(game).decode(board)


def by_solve_request_as_text(game: str, board: str) -> None:
    parse_request(json.dumps({"game": game, "board": board}).encode())


def by_solve_request_as_rows(game: str, board: str) -> None:
    parse_request(json.dumps({"game": game, "board": board.split("\n")}).encode())


def by_text_env(game: str, board: str) -> None:
    make_text_env(game, tier="mini").reset(options={"board": board})


def by_numeric_env(game: str, board: str) -> None:
    make_numeric_env(game, tier="mini").reset(options={"board": board})


DOORS: list[Door] = [
    by_decode,
    by_solve_request_as_text,
    by_solve_request_as_rows,
    by_text_env,
    by_numeric_env,
]


@pytest.fixture(autouse=True)
def lights_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    installed.install(installed.LIGHTS_OUT, tmp_path / "site")
    forget_plugins()
    yield
    forget_plugins()


def refusal(door: Door, game: str, board: str) -> str:
    with pytest.raises(PuzzleError) as caught:
        door(game, board)
    return str(caught.value)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("game", GOOD)
def test_whole_board_is_let_in(door: Door, game: str) -> None:
    door(game, GOOD[game])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("game", "board", "place"),
    [pytest.param(game, *rest, id=f"{game}-{fault}") for game, fault, *rest in BAD],
)
def test_broken_board_is_refused_by_row_and_column(
    door: Door, game: str, board: str, place: str
) -> None:
    message = refusal(door, game, board)
    assert place in message
    assert "\n" not in message
    assert message == refusal(by_decode, game, board)


@pytest.mark.parametrize(
    ("game", "board", "place"),
    [pytest.param(game, *rest, id=f"{game}-{fault}") for game, fault, *rest in BAD],
)
def test_import_names_the_row_of_the_file_and_of_the_board_and_writes_nothing(
    game: str, board: str, place: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"board": [board]}), tmp_path / "boards.parquet")
    report = import_puzzles(
        tmp_path / "boards.parquet",
        PuzzleSource(game=game, tier="mini", seed=0),
        out=tmp_path / "puzzles.parquet",
        skip_broken=False,
        progress=BuildProgress(),
    )
    (fault,) = report.faults
    assert fault.place == "row 0"
    assert place in fault.reason
    assert not (tmp_path / "puzzles.parquet").exists()


@pytest.mark.parametrize("game", GOOD)
def test_solve_answers_broken_boards_in_their_place(game: str, tmp_path: Path) -> None:
    boards = [board for name, _, board, _ in BAD if name == game]
    boards.insert(1, GOOD[game])
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps({"game": game, "board": board}) for board in boards))
    assert solve_file(source, target, with_q=False) == len(boards) - 1
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert isinstance(found.pop(1)["cost"], int)
    del boards[1]
    assert [answer["error"] for answer in found] == [
        refusal(by_decode, game, board) for board in boards
    ]
