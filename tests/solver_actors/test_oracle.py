"""The cached solvers: whole groups at once, counted look-ups, and a bound that holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.games.sokoban import Sokoban
from cast_ray.rollout.trajectory import ROLLOUT_SCHEMA, Trajectory, costs_of, to_rollout_batch
from solver_actors.oracle import Oracle
from solver_actors.sokoban.search import SokobanSearchSolver
from solver_actors.sokoban.table import solve_sokoban
from tests.support.made_up_run import play, scripted

GAME = Sokoban()
ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"
CORRIDOR = "P_X_O"
LARGE = "\n".join(["P_X_O" + "_" * 195, *["_" * 200] * 11])
"""Above the cap of the table: its solver grows as it is used."""


def cost_of(board: str) -> float:
    state = GAME.decode(board)
    return float(solve_sokoban(state).cost_to_go([state])[0])


def played(board: str, *actions: str) -> Trajectory:
    answers = [f"```{action}```" for action in actions]
    return play(board, scripted(answers), turn_budget=len(actions), oracle=Oracle(max_bytes=2**20))


def group() -> list[Trajectory]:
    """Return episodes that share states: two solve the room, one ends dead, one walks."""
    return [
        played(ROOM, "Right", "Down", "Left", "Down", "Right"),
        played(ROOM, "Down", "Right", "Up", "Right", "Down"),
        played(ROOM, "Right", "Right", "Down", "Left"),
        played(ROOM, "Down", "Left", "Up", "Right", "Right", "Left"),
    ]


def scored_costs(oracle: Oracle, trajectories: list[Trajectory]) -> list[list[float]]:
    batch = oracle.score(to_rollout_batch(trajectories))
    return [costs_of(row).tolist() for row in batch.to_pylist()]


def expected_costs(trajectories: list[Trajectory]) -> list[list[float]]:
    return [[cost_of(board) for board in t.states] for t in trajectories]


def test_a_group_is_scored_as_each_state_is_by_itself() -> None:
    trajectories = group()
    expected = expected_costs(trajectories)
    assert scored_costs(Oracle(max_bytes=2**20), trajectories) == expected
    assert [costs[-1] for costs in expected] == [0, 0, np.inf, 4]


def test_rows_of_several_puzzles_in_any_order_are_scored_as_alone() -> None:
    first, second, third, fourth = group()
    others = [played(CORRIDOR, "Right", "Left"), played(CORRIDOR, "Right", "Right", "Right")]
    mixed = [others[0], third, first, others[1], fourth, second]
    assert scored_costs(Oracle(max_bytes=2**20), mixed) == expected_costs(mixed)


def test_states_that_begin_elsewhere_in_the_same_room_share_its_solver() -> None:
    later = ROOM.replace("P_", "_P")
    oracle = Oracle(max_bytes=2**20)
    trajectories = [played(ROOM, "Right"), played(later, "Left")]
    assert scored_costs(oracle, trajectories) == expected_costs(trajectories)
    assert (oracle.counters.num_misses, oracle.counters.num_hits) == (1, 1)


def test_a_slice_of_a_batch_is_scored_like_its_rows() -> None:
    trajectories = group()
    batch = to_rollout_batch(trajectories).slice(1, 2)
    rows = Oracle(max_bytes=2**20).score(batch).to_pylist()
    assert [costs_of(row).tolist() for row in rows] == expected_costs(trajectories[1:3])


def test_batch_without_rows_is_scored_to_one_without_rows() -> None:
    empty = pa.RecordBatch.from_pylist([], schema=ROLLOUT_SCHEMA)
    assert Oracle(max_bytes=2**20).score(empty).num_rows == 0


def test_repeated_texts_keep_their_places() -> None:
    boards = [CORRIDOR, "_PX_O", CORRIDOR, "__P_*", "_PX_O"]
    costs = Oracle(max_bytes=2**20).cost_to_go("sokoban", boards)
    assert costs.tolist() == [3, 2, 3, 0, 2]


def test_state_of_another_room_in_a_trajectory_is_refused() -> None:
    mixed_up = replace(played(ROOM, "Right"), states=(ROOM, CORRIDOR))
    with pytest.raises(ValueError, match=r"layout.*'P_X_O'"):
        Oracle(max_bytes=2**20).score(to_rollout_batch([*group(), mixed_up]))


def test_each_trajectory_is_a_look_up_and_one_of_them_builds() -> None:
    oracle = Oracle(max_bytes=2**20)
    trajectories = group()
    scored_costs(oracle, trajectories)
    scored_costs(oracle, trajectories)
    counters = oracle.counters
    assert (counters.num_misses, counters.num_hits) == (1, 7)
    assert counters.num_states == 2 * sum(len(t.states) for t in trajectories)
    assert counters.seconds_building > 0
    assert counters.seconds_scoring > 0
    assert counters.num_evictions == 0


def test_solvers_not_used_for_longest_make_room_and_are_counted() -> None:
    oracle = Oracle(max_bytes=700)  # a table of ROOM takes 434 bytes, one of a corridor 178
    for board in (ROOM, CORRIDOR, ROOM):
        oracle.solver("sokoban", board)
    assert oracle.counters.num_evictions == 0
    for board in (CORRIDOR[::-1], ROOM, CORRIDOR):
        oracle.solver("sokoban", board)
    counters = oracle.counters
    assert (counters.num_misses, counters.num_hits, counters.num_evictions) == (4, 2, 2)
    assert counters.memory_bytes == 434 + 178


def test_the_solver_in_use_is_kept_however_large() -> None:
    oracle = Oracle(max_bytes=1)
    assert oracle.cost_to_go("sokoban", [ROOM]).tolist() == [cost_of(ROOM)]
    first = oracle.solver("sokoban", ROOM)
    assert oracle.solver("sokoban", ROOM) is first
    oracle.solver("sokoban", CORRIDOR)
    assert oracle.counters.num_evictions == 1
    assert oracle.counters.memory_bytes == oracle.solver("sokoban", CORRIDOR).memory_bytes


def test_growth_by_scoring_counts_against_the_bound() -> None:
    empty = SokobanSearchSolver(GAME.decode(LARGE).layout).memory_bytes
    small = solve_sokoban(GAME.decode(CORRIDOR)).memory_bytes
    oracle = Oracle(max_bytes=empty + small)
    oracle.solver("sokoban", CORRIDOR)
    large = oracle.solver("sokoban", LARGE)
    assert oracle.counters.num_evictions == 0
    assert oracle.counters.memory_bytes == large.memory_bytes + small

    oracle.cost_to_go("sokoban", [LARGE])

    assert large.memory_bytes > empty
    assert oracle.counters.num_evictions == 1
    assert oracle.counters.memory_bytes == large.memory_bytes


def test_growth_of_a_solver_that_was_handed_out_counts_at_the_next_look_up() -> None:
    oracle = Oracle(max_bytes=2**20)
    large = oracle.solver("sokoban", LARGE)
    large.cost_to_go([GAME.decode(LARGE)])
    small = oracle.solver("sokoban", CORRIDOR)
    assert oracle.counters.memory_bytes == large.memory_bytes + small.memory_bytes
