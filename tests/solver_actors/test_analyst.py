"""What the analyst says, held against enumeration, the solvers and the rules; and what it hides."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.analysis import Analysis
from cast_ray.games.game import Effect, Status
from solver_actors.analyst import analyst
from solver_actors.analyst.analyst import analyse, analyse_visible
from solver_actors.analyst.local import LocalAnalyst
from solver_actors.kernels import compile_kernels
from solver_actors.minesweeper.entry import cell_risks
from solver_actors.minesweeper.solver import MinesweeperSolver
from solver_actors.minesweeper.views import read_view
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.sokoban.search import SokobanSearchSolver
from tests.solver_actors import brute_force_minesweeper as brute_force
from tests.support import minefields, rush_hour_boards
from tests.support.rooms import FIXED, rooms

ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"
DEAD_ROOM = "#####\n#X__#\n#_P_#\n#__O#\n#####"
LOSES = "001+.\n112..\n.+...\n.+...\n+...."
"""The solver hits a mine from here: K is infinite, and the game goes on."""
LARGE = (3, 4, 5, 5)
MAX_BYTES = 1 << 24


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compile first: a line has two seconds."""
    compile_kernels(["minesweeper", "rush_hour", "sokoban"])


def one(game: str, board: str, **asked: Any) -> Analysis:
    return analyse(Oracle(max_bytes=MAX_BYTES), game, [board], **asked)[0]


def seen(text: str) -> list[str]:
    """Return the rows of a Minesweeper board as a player sees them."""
    return text.translate(str.maketrans("+f", ".F")).split("\n")


def num_mines(text: str) -> int:
    return sum(symbol in "+F*" for symbol in text)


def chances(text: str) -> list[list[float | None]]:
    """Return the chance of a mine in each hidden cell, by enumeration of all placements."""
    found = brute_force.mine_probabilities(text)
    lines = text.split("\n")
    return [
        [float(found[r, c]) if (r, c) in found else None for c in range(len(lines[r]))]
        for r in range(len(lines))
    ]


def layouts(rows: Sequence[str], count: int) -> list[str]:
    """Return every board with so many mines that looks like these rows."""
    places = [(r, c) for r, line in enumerate(rows) for c in range(len(line))]
    found = []
    for chosen in combinations([(r, c) for r, c in places if rows[r][c] in ".F"], count):
        mines = set(chosen)
        if all(
            len(mines & {(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}) == int(rows[r][c])
            for r, c in places
            if rows[r][c].isdigit()
        ):
            symbols = {
                (r, c): {".": ".+", "F": "fF"}.get(rows[r][c], rows[r][c] * 2)[(r, c) in mines]
                for r, c in places
            }
            found.append(
                "\n".join(
                    "".join(symbols[r, c] for c in range(len(line))) for r, line in enumerate(rows)
                )
            )
    return found


def followed(game: str, board: str, line: Sequence[str]) -> Status:
    """Return where a line leads; every action of it must change the state."""
    rules = get_game(game)
    state = rules.decode(board)
    for action in line:
        transition = rules.apply(state, action)
        assert transition.effect is Effect.CHANGED
        state = transition.state
    return rules.status(state)


# Costs, best, lines.


def test_a_room_is_told_whole() -> None:
    found = one("sokoban", ROOM, with_line=True)
    assert (found.cost, found.best) == (5, "Down")
    assert found.action_costs == {"Down": 4, "Right": 4}
    assert found.line == ("Down", "Right", "Up", "Right", "Down")
    assert found.teacher is None
    assert found.cell_risks is None


@FIXED
@given(rooms())
def test_a_line_through_a_room_is_as_long_as_its_cost(board: str) -> None:
    found = one("sokoban", board, with_line=True)
    _check_line("sokoban", board, found)


@FIXED
@given(rush_hour_boards.boards())
def test_a_line_through_traffic_is_as_long_as_its_cost(board: str) -> None:
    found = one("rush_hour", board, with_line=True)
    _check_line("rush_hour", board, found)


@FIXED
@given(minefields.boards())
def test_a_line_through_a_minefield_is_the_solvers_own_play(board: str) -> None:
    board = board.translate(str.maketrans("fF", ".+"))
    found = one("minesweeper", board, with_line=True)
    _check_line("minesweeper", board, found)


def _check_line(game: str, board: str, found: Analysis) -> None:
    assert found.cost is not None
    if math.isinf(found.cost):
        assert found.line is None
        assert found.best is None
        return
    assert found.line is not None
    assert len(found.line) == found.cost
    assert found.best == next(iter(found.line), None)
    assert followed(game, board, found.line) is Status.WON


def test_a_line_lifts_the_flags_in_its_way() -> None:
    board = "1+\nf."
    found = one("minesweeper", board, with_line=True)
    assert found.line is None or followed("minesweeper", board, found.line) is Status.WON
    flagged = "01+\n011\nf00"
    found = one("minesweeper", flagged, with_line=True)
    assert found.line == ("flag 2 0", "reveal 2 0")


def test_a_line_above_the_tables_cap_is_followed_without_another_search() -> None:
    board = "\n".join(["P_X" + "_" * 90 + "O" + "_" * 100, *["_" * 194] * 11])
    oracle = Oracle(max_bytes=MAX_BYTES)
    solver = oracle.solver("sokoban", board)
    assert isinstance(solver, SokobanSearchSolver)
    analyse(oracle, "sokoban", [board])
    remembered = solver.memory_bytes
    found = analyse(oracle, "sokoban", [board], with_line=True)[0]
    assert solver.memory_bytes == remembered  # every search adds to it
    assert found.line == ("Right",) * 92
    assert found.cost == 92


def test_a_line_that_takes_too_long_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyst, "LINE_SECONDS", -1.0)
    found = one("sokoban", ROOM, with_line=True)
    assert (found.cost, found.line) == (5, None)


def test_a_line_above_the_limit_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyst, "MAX_LINE", 4)
    assert one("sokoban", ROOM, with_line=True).line is None
    monkeypatch.setattr(analyst, "MAX_LINE", 5)
    assert one("sokoban", ROOM, with_line=True).line is not None


def test_a_dead_room_has_no_best_and_no_line() -> None:
    found = one("sokoban", DEAD_ROOM, with_line=True, temperature=1.0)
    assert found.cost == math.inf
    assert (found.best, found.line) == (None, None)
    assert found.action_costs is not None
    assert set(found.action_costs.values()) == {math.inf}


def test_a_jam_is_dead() -> None:
    walled = "............AAx....................."
    found = one("rush_hour", walled, with_line=True)
    assert (found.cost, found.best, found.line) == (math.inf, None, None)


@FIXED
@given(st.integers(0, 2**32))
def test_many_boards_of_one_layout_are_those_asked_alone(seed: int) -> None:
    rng = random.Random(seed)
    rules = get_game("sokoban")
    states = [rules.decode(ROOM)]
    for _ in range(6):
        states.append(rules.apply(states[-1], rng.choice(rules.actions(states[-1]))).state)
    boards = [rules.encode(state) for state in states]
    asked = {"temperature": 0.5, "with_line": True}
    together = analyse(Oracle(max_bytes=MAX_BYTES), "sokoban", boards, **asked)
    assert together == [one("sokoban", board, **asked) for board in boards]


def test_boards_of_two_layouts_are_refused() -> None:
    with pytest.raises(PuzzleError, match=r"board 1.*layout"):
        analyse(Oracle(max_bytes=MAX_BYTES), "sokoban", [ROOM, "P_X_O"])


def test_a_broken_board_and_an_unknown_game_are_refused() -> None:
    with pytest.raises(PuzzleError, match="row 0, column 1"):
        one("sokoban", "P?X_O")
    with pytest.raises(ConfigError, match="chess"):
        one("chess", ROOM)


# The teacher.


@FIXED
@given(rooms(), st.sampled_from([0.3, 1.0, 4.0]))
def test_the_teacher_weighs_actions_by_their_drop_in_cost(board: str, tau: float) -> None:
    found = one("sokoban", board, temperature=tau)
    assert found.cost is not None
    assert found.action_costs is not None
    if found.cost == 0 or not found.action_costs:
        assert found.teacher is None
        return
    assert found.teacher is not None
    earned = {
        action: 0.0
        if math.isinf(found.cost)
        else found.cost - after
        if math.isfinite(after)
        else -found.cost
        for action, after in found.action_costs.items()
    }
    weights = {action: math.exp(value / tau) for action, value in earned.items()}
    total = sum(weights.values())
    assert found.teacher == pytest.approx({a: w / total for a, w in weights.items()}, rel=1e-9)


def test_a_won_game_needs_no_teacher() -> None:
    assert one("sokoban", "_P_*", temperature=1.0).teacher is None


# Minesweeper: what is seen, and no more.


@pytest.mark.parametrize("seed", range(150))
def test_mine_probabilities_equal_enumeration_whoever_is_asked(seed: int) -> None:
    text = minefields.random_board(seed, max_hidden=12)
    expected = tuple(map(tuple, chances(text)))
    assert one("minesweeper", text, privileged=True).cell_risks == expected
    assert one("minesweeper", text, privileged=False).cell_risks == expected
    assert analyse_visible("minesweeper", seen(text), num_mines(text)).cell_risks == expected


@pytest.mark.parametrize("seed", range(80))
def test_boards_that_look_alike_are_told_alike(seed: int) -> None:
    text = minefields.random_board(seed, max_hidden=11, sides=LARGE)
    alike = layouts(seen(text), num_mines(text))
    assert text in alike
    playing = [b for b in alike if get_game("minesweeper").status(_state(b)) is Status.PLAYING]
    told = {repr(one("minesweeper", board, privileged=False)) for board in playing}
    assert len(told) <= 1
    if playing:
        assert told == {repr(analyse_visible("minesweeper", seen(text), num_mines(text)))}


def _state(text: str) -> Any:
    return get_game("minesweeper").decode(text)


def test_boards_that_look_alike_are_many() -> None:
    counts = [
        len(layouts(seen(text), num_mines(text)))
        for text in (
            minefields.random_board(seed, max_hidden=11, sides=LARGE) for seed in range(80)
        )
    ]
    assert np.mean([count > 1 for count in counts]) > 0.3


@pytest.mark.parametrize("board", [LOSES, "001+.\n112..\n.Ff..\n.+...\n+...."])
def test_without_privilege_nothing_of_the_true_board_is_told(board: str) -> None:
    found = one("minesweeper", board, privileged=False, temperature=1.0, with_line=True)
    assert (found.cost, found.action_costs, found.line, found.teacher) == (None,) * 4
    state = _state(board)
    entry = get_solver_entry("minesweeper")
    assert found.best == entry.next_action(entry.build(state), state) is not None
    assert one("minesweeper", board).cost == math.inf


def test_with_privilege_all_is_told() -> None:
    found = one("minesweeper", LOSES, temperature=1.0)
    assert found.cost == math.inf
    assert found.best is None
    assert found.action_costs is not None
    assert found.teacher is not None
    assert set(found.teacher) == set(found.action_costs)


def test_privilege_changes_nothing_elsewhere() -> None:
    assert one("sokoban", ROOM, privileged=False) == one("sokoban", ROOM)


def test_a_lost_game_has_no_mine_probabilities() -> None:
    found = one("minesweeper", "*1\n1.", privileged=True)
    assert (found.cost, found.best, found.cell_risks) == (math.inf, None, None)
    assert one("minesweeper", "*1\n1.", privileged=False).best is None


def test_a_won_game_shows_its_mines_as_certain() -> None:
    found = one("minesweeper", "1+\n11")
    assert found.cost == 0
    assert found.cell_risks == ((None, 1.0), (None, None))
    assert one("minesweeper", "00\n00").cell_risks == ((None, None), (None, None))


def test_a_board_above_the_solvers_size_is_unknown() -> None:
    large = "\n".join(["+" + "." * 8, *["." * 9] * 8])
    told = one("minesweeper", large)
    assert told.cost is not None
    assert math.isnan(told.cost)
    assert (told.action_costs, told.best, told.cell_risks) == (None, None, None)
    assert one("minesweeper", large, privileged=False) == analyse_visible(
        "minesweeper", seen(large), 1
    )
    assert analyse_visible("minesweeper", seen(large), 1).cell_risks is None


def test_a_search_without_budget_is_unknown() -> None:
    assert read_view(["...", "121", "..."], 2, node_budget=1) is None
    state = read_view(["...", "121", "..."], 2)
    assert state is not None
    starved = MinesweeperSolver(state.layout, node_budget=1)
    assert cell_risks(starved, state) is None
    assert cell_risks(MinesweeperSolver(state.layout), state) is not None


# Views.


@pytest.mark.parametrize("seed", range(300))
def test_a_view_is_refused_where_no_layout_agrees_and_only_there(seed: int) -> None:
    rng = random.Random(seed)
    text = minefields.random_board(seed, max_hidden=10)
    rows = [list(row) for row in seen(text)]
    digits = [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell.isdigit()]
    for r, c in rng.sample(digits, min(len(digits), rng.randint(0, 2))):
        rows[r][c] = str(max(0, min(8, int(rows[r][c]) + rng.choice((-1, 1)))))
    view, count = ["".join(row) for row in rows], max(0, num_mines(text) + rng.choice((-1, 0, 1)))
    num_cells = sum(map(len, view))
    if count < num_cells and layouts(view, count):
        found = analyse_visible("minesweeper", view, count)
        assert found.cost is None
        assert found.cell_risks == tuple(map(tuple, chances(layouts(view, count)[0])))
    else:
        with pytest.raises(PuzzleError):
            analyse_visible("minesweeper", view, count)


@pytest.mark.parametrize(
    ("rows", "count", "match"),
    [
        ([], 1, "row 0, column 0"),
        ([""], 1, "row 0, column 0"),
        (["..", "."], 1, "ragged.*row 1, column 1"),
        (["..", ".+"], 1, r"'\+'.*row 1, column 1"),
        (["..", ".*"], 1, r"'\*'.*row 1, column 1"),
        (["1.", "19"], 1, "'9'.*row 1, column 1"),
        (["..", "4."], 3, "4.*row 1, column 0"),
        (["..", ".."], 4, "0 to 3"),
        (["1.", ".."], -1, "mines.*-1"),
        (["11", "1."], 2, "0 to 1"),
        (["1.", "2."], 1, "1 mines"),
        (["1" * 1025], 0, "1024"),
    ],
)
def test_a_view_that_cannot_be_is_refused_in_a_sentence(
    rows: list[str], count: int, match: str
) -> None:
    with pytest.raises(PuzzleError, match=match):
        analyse_visible("minesweeper", rows, count)


# Without Ray.


def test_the_local_analyst_says_the_same() -> None:
    async def ask() -> list[Any]:
        local = LocalAnalyst(max_bytes=MAX_BYTES)
        try:
            return [
                *await local.analyse("sokoban", [ROOM], temperature=1.0, with_line=True),
                *await local.analyse("minesweeper", [LOSES], privileged=False),
                await local.analyse_visible("minesweeper", seen(LOSES), num_mines(LOSES)),
            ]
        finally:
            local.close()

    assert asyncio.run(ask()) == [
        one("sokoban", ROOM, temperature=1.0, with_line=True),
        one("minesweeper", LOSES, privileged=False),
        analyse_visible("minesweeper", seen(LOSES), num_mines(LOSES)),
    ]


def test_the_local_analyst_leaves_the_event_loop_free() -> None:
    async def ask() -> bool:
        local = LocalAnalyst(max_bytes=MAX_BYTES)
        asked = asyncio.ensure_future(local.analyse("sokoban", [ROOM]))
        await asyncio.sleep(0)
        was_done = asked.done()
        await asked
        local.close()
        return was_done

    assert not asyncio.run(ask())


def test_the_local_analyst_hands_on_what_is_wrong() -> None:
    async def ask() -> None:
        local = LocalAnalyst(max_bytes=MAX_BYTES)
        try:
            await local.analyse("sokoban", ["?"])
        finally:
            local.close()

    with pytest.raises(PuzzleError):
        asyncio.run(ask())
