"""Credit apart from luck, against an average over every layout of the mines, one by one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.algorithms.credit import add_credit
from cast_ray.config.load import load_config
from cast_ray.datasets.splits import Boards, write_boards
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.game import Effect, Status
from cast_ray.games.puzzles import Puzzle
from cast_ray.parquet import read_table, write_table
from cast_ray.rollout.trajectory import BATCH_SCHEMA, ROLLOUT_SCHEMA
from cast_ray.training.replay.replay import replay_run
from cast_ray.training.value_net.oracle import check_oracle
from solver_actors.minesweeper.expected import ExpectedCredit, expected_credit
from solver_actors.minesweeper.solver import MinesweeperSolver
from solver_actors.oracle import Oracle
from tests.support.minefields import random_board

GAME = get_game("minesweeper")
DEMO = Path(__file__).parents[2] / "serve" / "demo" / "minesweeper"


def numbers(text: str) -> dict[int, str]:
    """The open cells of a visible text and what they show; a flag hides what is below."""
    cells = "".join(GAME.visible_rows(GAME.decode(text)))
    return {place: symbol for place, symbol in enumerate(cells) if symbol.isdigit()}


def plain_average(text: str, action: str, rescue: str) -> tuple[float, int]:
    """Every choice of as many cells for the mines that shows the same numbers; the rule's rows."""
    state = GAME.decode(text)
    layout = state.layout
    shown = numbers(text)
    closed = [cell for cell in range(layout.rows * layout.cols) if cell not in shown]
    earned = []
    for mines in combinations(closed, layout.mines.bit_count()):
        other = replace(state, layout=replace(layout, mines=sum(1 << cell for cell in mines)))
        if numbers(GAME.encode(other)) != shown:
            continue
        after = GAME.apply(other, action).state
        solver = MinesweeperSolver(other.layout)
        before_cost, after_cost = solver.cost_to_go([other, after])
        if np.isinf(before_cost):
            safe = layout.rows * layout.cols - layout.mines.bit_count()
            won = GAME.status(after) is Status.WON
            gained = 0.0 if np.isinf(after_cost) else (safe if won else after_cost)
            earned.append(gained if rescue == "cost" else 0.0)
        else:
            earned.append(-before_cost if np.isinf(after_cost) else before_cost - after_cost)
    return fmean(earned), len(earned)


def moves(text: str) -> list[str]:
    state = GAME.decode(text)
    return [a for a in GAME.actions(state) if GAME.apply(state, a).effect == Effect.CHANGED]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(["cost", "zero"]))
def test_expectation_is_the_average_over_all_layouts(seed: int, rescue: str) -> None:
    text = random_board(seed, max_hidden=9)
    state = GAME.decode(text)
    if GAME.status(state) is not Status.PLAYING:
        return
    for action in moves(text)[:4]:
        found = expected_credit(state, action, rescue=rescue)
        mean, count = plain_average(text, action, rescue)
        assert found == ExpectedCredit(pytest.approx(mean, abs=1e-12), 0.0, count)


def test_mines_that_the_player_cannot_tell_apart_give_the_same_credit() -> None:
    compared = 0
    for seed in range(60):
        state = GAME.decode(random_board(seed, max_hidden=9))
        if GAME.status(state) is not Status.PLAYING:
            continue
        shown = numbers(GAME.encode(state))
        cells = [c for c in range(state.layout.rows * state.layout.cols) if c not in shown]
        for mines in combinations(cells, state.layout.mines.bit_count()):
            mask = sum(1 << cell for cell in mines)
            other = replace(state, layout=replace(state.layout, mines=mask))
            if mask == state.layout.mines or numbers(GAME.encode(other)) != shown:
                continue
            for action in moves(GAME.encode(state))[:3]:
                one, two = (expected_credit(s, action, rescue="cost") for s in (state, other))
                assert one.mean == pytest.approx(two.mean, abs=1e-12)
                compared += 1
            break
    assert compared > 30


def test_drawn_layouts_come_near_the_average_of_all() -> None:
    missed = total = 0
    for seed in range(300):
        text = random_board(seed, max_hidden=13, sides=(4, 5))
        state = GAME.decode(text)
        if GAME.status(state) is not Status.PLAYING:
            continue
        exact = expected_credit(state, moves(text)[0], rescue="cost")
        if exact.num_layouts < 20:
            continue
        drawn = expected_credit(state, moves(text)[0], rescue="cost", most=1, draws=400)
        assert drawn == expected_credit(state, moves(text)[0], rescue="cost", most=1, draws=400)
        assert drawn.num_layouts == exact.num_layouts
        total += 1
        missed += abs(drawn.mean - exact.mean) > 2.6 * drawn.standard_error + 1e-9
    assert total >= 8
    assert missed <= 1  # of 99% intervals


def test_too_many_layouts_to_count_are_refused() -> None:
    # 64 cells with a lone 1 in each of nine places: their neighbours' choices multiply.
    rows = [["." for _ in range(8)] for _ in range(8)]
    for row in (1, 4, 7):
        for col in (1, 4, 7):
            rows[row][col] = "1"
    mines = [(r - 1, c - 1) for r in (1, 4, 7) for c in (1, 4, 7)]
    for row, col in mines:
        rows[row][col] = "+"
    state = GAME.decode("\n".join("".join(row) for row in rows))
    with pytest.raises(PuzzleError, match="too many layouts"):
        expected_credit(state, "reveal 3 3", rescue="cost")


def test_boards_that_look_alike_with_other_numbers_of_mines_are_averaged_apart() -> None:
    one, two = "+....\n1....\n.....\n.....", "+....\n1....\n.....\n....+"
    ask = {"actions": ["reveal 1 4"], "effects": [Effect.CHANGED]}
    together = Oracle(max_bytes=2**24, expected="cost")
    earned = [together.expectations("minesweeper", [text] * 2, **ask)[1] for text in (one, two)]
    alone = Oracle(max_bytes=2**24, expected="cost")
    assert earned[1] == alone.expectations("minesweeper", [two] * 2, **ask)[1] != earned[0]


def rescored(table: pa.Table, config: object, step: int) -> pa.Table:
    oracle = Oracle(max_bytes=2**24, expected="cost")
    rollout = table.select(ROLLOUT_SCHEMA.names).combine_chunks().to_batches()[0]
    scored = pa.Table.from_batches([oracle.score(rollout)])
    return add_credit(scored, config, step=step)[0]  # type: ignore[arg-type]


def test_run_with_the_average_as_its_oracle_is_credited_and_replayed(tmp_path: Path) -> None:
    run = Path(shutil.copytree(DEMO, tmp_path / "run"))
    files = sorted((run / "trajectories").glob("step-*.parquet"))
    for file in files[1:]:
        file.unlink()
    text = (run / "config.yaml").read_text().replace("oracle: exact", "oracle: expected")
    (run / "config.yaml").write_text(text)
    config = load_config(run / "config.yaml", [], is_stored=True)
    stored = read_table(files[0])
    step = stored["step"][0].as_py()
    table = rescored(stored, config, step)
    # The true costs stay; the credit is the average.
    assert table["cost_to_go"].equals(stored["cost_to_go"])
    row = table.to_pylist()[0]
    for turn, effect in enumerate(row["effects"]):
        credit = row["shifted_advantages"][turn]
        if effect == Effect.CHANGED:
            state = GAME.decode(row["states"][turn])
            asked = expected_credit(state, row["actions"][turn], rescue="cost")
            assert credit == pytest.approx(asked.mean, abs=1e-9)
        else:
            assert credit == 0
    write_table(files[0], table)
    boards = {one["puzzle_id"]: one for one in table.to_pylist()}
    puzzles = [
        Puzzle(
            game="minesweeper",
            tier="mini",
            puzzle_id=name,
            board=one["puzzle"],
            cost_to_go=one["cost_to_go"][0],
            cost_status=one["cost_status"][0],
            seed=0,
        )
        for name, one in boards.items()
    ]
    write_boards(Boards(train=puzzles, validation=[], held_out=[]), run / "puzzles")

    def told() -> set[str]:
        named = {d.what for d in replay_run(run).differences}
        return {what for what in named if "cost" in what or "advantage" in what}

    assert told() == set()
    rows = table.to_pylist()
    rows[0]["cost_estimates"][1] += 0.5
    write_table(files[0], pa.Table.from_pylist(rows, schema=BATCH_SCHEMA))
    assert "cost_estimates[1]" in told()


def test_average_has_less_variance_than_what_the_true_mines_give() -> None:
    tables = [read_table(file) for file in sorted((DEMO / "trajectories").glob("*.parquet"))]
    config = load_config(None, ["game=minesweeper", "oracle=expected"])
    true = np.concatenate([v for t in tables for v in t["shifted_advantages"].to_pylist()])
    average = np.concatenate(
        [
            v
            for t in tables
            for v in rescored(t, config, t["step"][0].as_py())["shifted_advantages"].to_pylist()
        ]
    )
    assert average.var() < true.var()
    # Both are estimates of the same thing.
    assert abs(average.mean() - true.mean()) < 4 * true.std() / np.sqrt(len(true))


def test_game_that_hides_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="solver of rush_hour has no such average"):
        check_oracle(load_config(None, ["game=rush_hour", "oracle=expected"]))
    check_oracle(load_config(None, ["game=minesweeper", "oracle=expected"]))
