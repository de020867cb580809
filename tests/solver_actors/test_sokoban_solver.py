"""The Sokoban solver against brute force, the reference's figures, and its own properties."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from cast_ray.errors import PuzzleError
from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.registry import get_solver_entry
from solver_actors.sokoban.table import SokobanSolver, build_table, solve_sokoban
from solver_actors.solver import Solver
from tests.solver_actors.brute_force_sokoban import brute_force
from tests.support.play import check_best_play
from tests.support.rooms import FIXED, random_room, rooms, symmetric_forms

GAME = Sokoban()
REFERENCE = Path(__file__).parents[3] / "shared/data/reference"
BOXES_AND_FLOOR = [(1, 36)] * 4 + [(2, 20)] * 4 + [(3, 12)] * 2
"""Number of boxes and most floor cells of the rooms for brute force, in turn."""

ROOM = "\n".join(
    (
        "######",
        "#____#",
        "#_X__#",
        "#__O_#",
        "#P___#",
        "######",
    )
)


def solver_of(text: str) -> Solver[SokobanState]:
    return solve_sokoban(GAME.decode(text))


def cost_of(text: str) -> float:
    return float(solver_of(text).cost_to_go([GAME.decode(text)])[0])


def brute_force_costs(seed: int) -> dict[str, float]:
    num_boxes, max_floor = BOXES_AND_FLOOR[seed % len(BOXES_AND_FLOOR)]
    return brute_force(random_room(seed, num_boxes=num_boxes, max_floor=max_floor))


@pytest.mark.parametrize("seed", range(220))
def test_table_equals_brute_force_on_every_state(seed: int) -> None:
    expected = brute_force_costs(seed)
    states = [GAME.decode(text) for text in expected]
    costs = solve_sokoban(states[0]).cost_to_go(states)
    np.testing.assert_array_equal(costs, list(expected.values()))


def test_rooms_for_brute_force_are_not_trivial() -> None:
    costs = np.concatenate([list(brute_force_costs(seed).values()) for seed in range(40)])
    assert np.isinf(costs).mean() > 0.2
    assert np.mean((costs >= 8) & np.isfinite(costs)) > 0.05


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference's boards are not here")
@pytest.mark.parametrize("tier", ["id", "unseen"])
def test_cost_equals_the_reference(tier: str) -> None:
    table = pq.read_table(REFERENCE / f"sokoban_{tier}_train.parquet").slice(0, 300)
    expected = table.column("cost_to_go").to_pylist()
    assert [cost_of(text) for text in table.column("board").to_pylist()] == expected


def test_cost_counts_walks_and_pushes() -> None:
    # Up twice, Right pushes, Up, Right, Down pushes.
    assert cost_of(ROOM) == 6


def test_box_in_a_corner_is_dead() -> None:
    corner = ROOM.replace("#____#\n#_X__#", "#X___#\n#____#")
    assert np.isinf(cost_of(corner))
    assert solver_of(corner).is_dead(GAME.decode(corner))
    assert not solver_of(ROOM).is_dead(GAME.decode(ROOM))


def test_action_costs_are_in_canonical_order_and_leave_out_blocked_actions() -> None:
    costs = solver_of(ROOM).action_costs(GAME.decode(ROOM))
    assert list(costs.items()) == [("Up", 5.0), ("Right", 7.0)]


def test_best_action_is_the_first_of_least_cost() -> None:
    room = "P___\n____\n__X_\n__O_"
    assert solver_of(room).action_costs(GAME.decode(room)) == {"Down": 3.0, "Right": 3.0}
    assert solver_of(room).best_action(GAME.decode(room)) == "Down"


def test_no_best_action_in_a_solved_state() -> None:
    solved = GAME.decode("_P_*_")
    assert solve_sokoban(solved).best_action(solved) is None


def test_no_best_action_in_a_dead_state() -> None:
    dead = GAME.decode("X_P_O")
    assert solve_sokoban(dead).best_action(dead) is None


def test_state_of_another_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="another layout"):
        solver_of(ROOM).cost_to_go([GAME.decode(ROOM), GAME.decode("PXO")])


def test_cost_of_no_states_is_empty() -> None:
    assert solver_of(ROOM).cost_to_go([]).shape == (0,)


def test_costs_of_a_batch_do_not_depend_on_the_other_states() -> None:
    expected = brute_force(ROOM)
    states = [GAME.decode(text) for text in expected]
    backwards = solver_of(ROOM).cost_to_go(states[::-1])
    np.testing.assert_array_equal(backwards[::-1], list(expected.values()))


def test_too_many_states_is_an_error_that_names_the_cap() -> None:
    # 16 floor cells, 1 box: 256 states.
    state = GAME.decode(ROOM)
    assert build_table(state, state_cap=256).costs.shape == (256,)
    with pytest.raises(PuzzleError, match="255"):
        build_table(state, state_cap=255)


def test_table_pickles_without_a_copy_of_its_costs() -> None:
    table = build_table(GAME.decode(ROOM))
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(table, protocol=5, buffer_callback=buffers.append)
    copy = pickle.loads(data, buffers=buffers)
    assert sum(len(buffer.raw()) for buffer in buffers) == table.memory_bytes
    assert np.shares_memory(copy.costs, table.costs)
    assert SokobanSolver(copy).best_action(GAME.decode(ROOM)) == "Up"


def test_table_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        build_table(GAME.decode(ROOM)).costs[0] = 1


def test_layout_key_is_shared_by_the_states_of_a_room_only() -> None:
    key = get_solver_entry("sokoban").layout_key
    moved = ROOM.replace("#P___#", "#__P_#")
    other = ROOM.replace("#__O_#", "#_O__#")
    assert key(GAME.decode(ROOM)) == key(GAME.decode(moved)) != key(GAME.decode(other))


@FIXED
@given(rooms())
def test_cost_is_equal_under_all_symmetries(room: str) -> None:
    assert {cost_of(form) for form in symmetric_forms(room)} == {cost_of(room)}


@FIXED
@given(rooms())
def test_an_action_lowers_the_cost_by_at_most_one_and_a_walk_raises_it_by_at_most_one(
    room: str,
) -> None:
    state = GAME.decode(room)
    cost = cost_of(room)
    for action, after in solver_of(room).action_costs(state).items():
        assert after >= cost - 1
        is_walk = GAME.apply(state, action).state.boxes == state.boxes
        assert not is_walk or after <= cost + 1


@FIXED
@given(rooms())
def test_playing_best_actions_solves_the_room_in_n_turns(room: str) -> None:
    state = GAME.decode(room)
    check_best_play(GAME, solve_sokoban(state), state)
