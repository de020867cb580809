"""The Rush Hour solver against brute force, the reference's figures, and its own properties."""

from __future__ import annotations

import math
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.games.rush_hour import RushHour, RushHourState
from cast_ray.games.rush_hour_keys import geometry_of, keys_of
from solver_actors.registry import get_solver_entry
from solver_actors.rush_hour.search import MAX_LENGTH, Outcome, lower_bound, shortest_length
from solver_actors.rush_hour.table import RushHourSolver, build_table, solve_rush_hour
from tests.solver_actors.brute_force_rush_hour import brute_force
from tests.support.play import check_best_play
from tests.support.rooms import FIXED
from tests.support.rush_hour_boards import boards, random_board, relabelled

GAME = RushHour()
REFERENCE = Path(__file__).parents[3] / "shared/data/reference"
NUM_PUZZLES = 240
SIZES = ((3, 3), (3, 8), (8, 3), (4, 5), (5, 7), (7, 6), (7, 7), (8, 8))
"""Of every fourth puzzle, all of them to be solved; the others are 6 x 6."""
MOST_STATES = 450
"""Largest component for brute force."""
ENOUGH = 10**6
"""Node budget that no search in these tests uses up."""

BOARD = (
    "..B..."  #
    "..BCCC"
    "AAB..."
    "D..x.."
    "D..EE."
    "D....."
)
"""B down by three, A out: N = 2."""
HARD = (
    "......"  #
    "..BC.."
    "AABCDE"
    "F.BCDE"
    "FGG.DE"
    "......"
)
"""N = 13."""


@cache
def brute_force_puzzle(number: int) -> dict[str, float]:
    """Return N of all states in reach of the first small enough of the number's random boards."""
    size = SIZES[number // 4 % len(SIZES)] if number % 4 == 0 else None
    crowd = (3 + number % 9, number // 9 % 5)
    if size:  # few walls leave a large board too many states, and most small boards are dead
        crowd = (7, 20) if min(size) > 5 else (3 + number % 3, 1)
    for attempt in range(1000):
        board = random_board(
            1000 * number + attempt, num_vehicles=crowd[0], num_walls=crowd[1], size=size
        )
        costs = brute_force(board, most=MOST_STATES)
        if costs and (not size or 2 <= max(costs.values()) < math.inf):
            return costs
    raise AssertionError(f"no small board for puzzle {number}")


def decoded(texts: dict[str, float]) -> list[RushHourState]:
    return [GAME.decode(text) for text in texts]


def cost_of(board: str) -> float:
    state = GAME.decode(board)
    return float(solve_rush_hour(state).cost_to_go([state])[0])


@pytest.mark.parametrize("number", range(NUM_PUZZLES))
def test_table_equals_brute_force_on_every_state(number: int) -> None:
    expected = brute_force_puzzle(number)
    states = decoded(expected)
    solver = solve_rush_hour(states[0])
    np.testing.assert_array_equal(solver.cost_to_go(states), list(expected.values()))
    assert len(solver.tables) == 1
    assert np.count_nonzero(solver.tables[0].slots >= 0) == len(expected)


@pytest.mark.parametrize("number", range(0, NUM_PUZZLES, 2))
def test_search_equals_brute_force(number: int) -> None:
    expected = brute_force_puzzle(number)
    for text, cost in list(expected.items())[::40]:
        result = shortest_length(GAME.decode(text), max_length=12, node_budget=ENOUGH)
        if cost <= 12:
            assert (result.outcome, result.length) == (Outcome.EXACT, cost)
        else:
            assert result.outcome in (Outcome.LONGER, Outcome.DEAD)
            assert result.outcome is not Outcome.DEAD or np.isinf(cost)


@pytest.mark.parametrize("number", range(0, NUM_PUZZLES, 4))
def test_lower_bound_is_zero_where_won_and_never_above_the_cost(number: int) -> None:
    expected = brute_force_puzzle(number)
    states = decoded(expected)
    geometry = geometry_of(states[0].layout)
    bounds = [lower_bound(key, geometry) for key in keys_of(states, len(states[0].offsets))]
    costs = np.array(list(expected.values()))
    assert (bounds <= costs).all()
    np.testing.assert_array_equal(np.equal(bounds, 0), costs == 0)


def test_puzzles_for_brute_force_are_not_trivial() -> None:
    costs = np.concatenate([list(brute_force_puzzle(n).values()) for n in range(NUM_PUZZLES)])
    assert 0.05 < np.isinf(costs).mean() < 0.6
    assert np.mean((costs >= 3) & np.isfinite(costs)) > 0.05
    assert np.max(costs[np.isfinite(costs)]) >= 6


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference's boards are not here")
@pytest.mark.parametrize("tier", ["id", "unseen"])
def test_cost_equals_the_reference(tier: str) -> None:
    table = pq.read_table(REFERENCE / f"rush_hour_{tier}_train.parquet").slice(0, 300)
    boards_of_tier = table.column("board").to_pylist()
    expected = table.column("optimal_moves").to_pylist()
    assert [cost_of(board) for board in boards_of_tier] == expected
    searched = [
        shortest_length(GAME.decode(board), max_length=20, node_budget=20_000).length
        for board in boards_of_tier
    ]
    assert searched == expected


def test_on_a_tall_board_the_way_down_counts_as_a_way_out() -> None:
    state = GAME.decode("...\n..C\n..C\nAAB\n..B\n...\n...\n...")
    [key] = keys_of([state], 3)
    assert lower_bound(key, geometry_of(state.layout)) == 2
    assert solve_rush_hour(state).cost_to_go([state])[0] == 2


def test_one_slide_of_any_length_is_one_move() -> None:
    assert cost_of("." * 12 + "AA...." + "." * 18) == 1
    assert cost_of(BOARD) == 2
    assert cost_of(BOARD.replace("D..EE.", "D.EE..")) == 3


def test_search_says_longer_from_the_first_length_that_is_too_short() -> None:
    state = GAME.decode(HARD)
    assert cost_of(HARD) == 13
    at_limit = shortest_length(state, max_length=13, node_budget=ENOUGH)
    assert (at_limit.outcome, at_limit.length) == (Outcome.EXACT, 13)
    below = shortest_length(state, max_length=12, node_budget=ENOUGH)
    assert (below.outcome, below.length) == (Outcome.LONGER, -1)


def test_search_out_of_budget_says_so_and_claims_nothing() -> None:
    result = shortest_length(GAME.decode(HARD), max_length=MAX_LENGTH, node_budget=5)
    assert (result.outcome, result.length) == (Outcome.EXHAUSTED, -1)


@pytest.mark.parametrize(
    "row", ["AA.x..", "AA..BB", "AABBB.", "AAAx..", "xAABBx"], ids=lambda row: f"row 2 is {row}"
)
def test_blocked_row_is_proven_dead_without_a_search(row: str) -> None:
    state = GAME.decode("C....." + "C....." + row + "." * 18)
    assert shortest_length(state, max_length=9, node_budget=0).outcome is Outcome.DEAD


def test_column_without_space_for_a_car_off_the_row_is_proven_dead() -> None:
    full = "...B.....B..AA.B.....C.....C.....C.."
    walled = "...x.....B..AA.B.....x.............."
    for board in (full, walled):
        assert np.isinf(cost_of(board))
        result = shortest_length(GAME.decode(board), max_length=9, node_budget=0)
        assert result.outcome is Outcome.DEAD
    roomy = full[:3] + "." + full[4:]
    assert shortest_length(GAME.decode(roomy), max_length=9, node_budget=ENOUGH).length == 2


@pytest.mark.parametrize(("max_length", "node_budget"), [(-1, 9), (MAX_LENGTH + 1, 9), (9, -1)])
def test_limits_out_of_range_are_refused(max_length: int, node_budget: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        shortest_length(GAME.decode(HARD), max_length=max_length, node_budget=node_budget)


def test_action_costs_are_in_canonical_order_and_leave_out_blocked_slides() -> None:
    state = GAME.decode(BOARD)
    costs = solve_rush_hour(state).action_costs(state)
    assert list(costs.items()) == [
        *[("B+1", 2.0), ("B+2", 2.0), ("B+3", 1.0)],
        *[("E-1", 3.0), ("E-2", 3.0), ("E+1", 2.0)],
    ]


def test_best_action_is_the_first_of_least_cost() -> None:
    both = GAME.decode("......" + "...BC." + "AA.BC." + "." * 18)
    costs = solve_rush_hour(both).action_costs(both)
    least = [action for action, cost in costs.items() if cost == 2]
    assert least == ["B-1", "B+2", "B+3", "C-1", "C+2", "C+3"]
    assert min(costs.values()) == 2
    assert solve_rush_hour(both).best_action(both) == "B-1"


@pytest.mark.parametrize("row", ["....AA", "AA.x.."], ids=["solved", "dead"])
def test_no_best_action_in_a_solved_or_dead_state(row: str) -> None:
    state = GAME.decode("." * 12 + row + "BB....".ljust(18, "."))
    assert solve_rush_hour(state).best_action(state) is None


def test_dead_is_what_no_slides_solve() -> None:
    dead, alive = GAME.decode("." * 12 + "AA.x.." + "." * 18), GAME.decode(BOARD)
    assert solve_rush_hour(dead).is_dead(dead)
    assert not solve_rush_hour(alive).is_dead(alive)


def test_state_of_another_layout_is_refused() -> None:
    solver = solve_rush_hour(GAME.decode(BOARD))
    with pytest.raises(ValueError, match="another layout"):
        solver.cost_to_go([GAME.decode(BOARD), GAME.decode(HARD)])


def test_cost_of_no_states_is_empty() -> None:
    assert solve_rush_hour(GAME.decode(BOARD)).cost_to_go([]).shape == (0,)


def test_costs_of_a_batch_do_not_depend_on_the_other_states() -> None:
    expected = brute_force_puzzle(3)
    states = decoded(expected)
    backwards = solve_rush_hour(states[7]).cost_to_go(states[::-1])
    np.testing.assert_array_equal(backwards[::-1], list(expected.values()))


SEPARATED = "xBBCC." + "." * 6 + "AA...." + "." * 18
"""C stays right of B for ever, so the board with B and C exchanged is in another component."""


def test_other_component_of_a_layout_gets_its_table_on_demand() -> None:
    first = GAME.decode(SEPARATED)
    second = GAME.decode(SEPARATED.translate(str.maketrans("BC", "CB")))
    assert second.layout == first.layout
    solver = solve_rush_hour(first)
    assert len(solver.tables) == 1
    before = solver.memory_bytes
    np.testing.assert_array_equal(solver.cost_to_go([first, second, second, first]), [1, 1, 1, 1])
    assert len(solver.tables) == 2
    assert solver.memory_bytes > before
    solver.cost_to_go([second, first])
    assert len(solver.tables) == 2


def test_components_of_a_layout_differ_in_what_can_be_solved() -> None:
    solvable = GAME.decode("." * 12 + "BBAA.." + "." * 18)
    dead = GAME.decode("." * 12 + "AABB.." + "." * 18)
    assert solvable.layout == dead.layout
    for states, costs in (([solvable, dead], [1, np.inf]), ([dead, solvable], [np.inf, 1])):
        np.testing.assert_array_equal(solve_rush_hour(states[0]).cost_to_go(states), costs)


def test_component_at_the_cap_gets_a_table_and_above_it_is_searched() -> None:
    expected = brute_force_puzzle(12)
    states = decoded(expected)
    for state_cap, has_table in ((len(states), True), (len(states) - 1, False), (1, False)):
        solver = RushHourSolver(states[0].layout, state_cap=state_cap, node_budget=ENOUGH)
        np.testing.assert_array_equal(solver.cost_to_go(states[::9]), list(expected.values())[::9])
        assert bool((solver.tables[0].costs >= 0).any()) == has_table


def test_above_the_cap_a_small_budget_gives_unknown_and_never_infinite() -> None:
    states = decoded(brute_force(HARD, most=10**4))[::9]
    exact = solve_rush_hour(states[0]).cost_to_go(states)
    solver = RushHourSolver(states[0].layout, state_cap=10, node_budget=20)
    costs = solver.cost_to_go(states)
    assert 0.2 < np.isnan(costs).mean() < 1.0
    np.testing.assert_array_equal(costs[~np.isnan(costs)], exact[~np.isnan(costs)])
    unknown = states[int(np.flatnonzero(np.isnan(costs))[0])]
    assert solver.best_action(unknown) is None
    assert not solver.is_dead(unknown)


def test_above_the_cap_infinite_is_proven() -> None:
    blocked = GAME.decode("." * 12 + "AA.x.." + "." * 6 + "BB...." + "CC....")
    solver = RushHourSolver(blocked.layout, state_cap=3, node_budget=0)
    np.testing.assert_array_equal(solver.cost_to_go([blocked]), [np.inf])


def test_above_the_cap_best_actions_solve_the_board() -> None:
    state = GAME.decode(HARD)
    solver = RushHourSolver(state.layout, state_cap=10, node_budget=ENOUGH)
    assert solver.best_action(state) == solve_rush_hour(state).best_action(state)


def test_solver_pickles_without_a_copy_of_its_tables() -> None:
    state = GAME.decode(BOARD)
    solver = solve_rush_hour(state)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(solver, protocol=5, buffer_callback=buffers.append)
    copy = pickle.loads(data, buffers=buffers)
    assert sum(len(buffer.raw()) for buffer in buffers) == solver.memory_bytes
    assert np.shares_memory(copy.tables[0].costs, solver.tables[0].costs)
    assert np.shares_memory(copy.tables[0].slots, solver.tables[0].slots)
    assert copy.best_action(state) == "B+3"
    assert len(copy.tables) == 1


def test_table_is_read_only() -> None:
    table = build_table(GAME.decode(BOARD))
    for array in (table.slots, table.costs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_layout_key_is_shared_by_the_states_of_a_puzzle_only() -> None:
    key = get_solver_entry("rush_hour").layout_key
    moved = GAME.apply(GAME.decode(BOARD), "E-2").state
    walled = GAME.decode(BOARD.replace("x", "."))
    assert key(GAME.decode(BOARD)) == key(moved) != key(walled)
    assert hash(key(GAME.decode(BOARD))) == hash(key(moved))


@FIXED
@given(st.integers(0, NUM_PUZZLES - 1), st.integers(0, 1000))
def test_other_letters_leave_all_costs_as_they_are(number: int, seed: int) -> None:
    expected = brute_force_puzzle(number)
    states = [GAME.decode(relabelled(text, seed)) for text in expected]
    costs = solve_rush_hour(states[0]).cost_to_go(states)
    np.testing.assert_array_equal(costs, list(expected.values()))


@FIXED
@given(boards())
def test_a_slide_changes_the_cost_by_at_most_one(board: str) -> None:
    state = GAME.decode(board)
    solver = solve_rush_hour(state)
    cost = solver.cost_to_go([state])[0]
    for after in solver.action_costs(state).values():
        assert after == cost or abs(after - cost) == 1


@FIXED
@given(boards())
def test_playing_best_actions_solves_the_board_in_n_turns(board: str) -> None:
    state = GAME.decode(board)
    check_best_play(GAME, solve_rush_hour(state), state)
