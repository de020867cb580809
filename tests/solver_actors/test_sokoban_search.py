"""The Sokoban search against the table, and the parts of its bound against brute force."""

from __future__ import annotations

import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.games.game import Status, Tier
from cast_ray.games.generators.sokoban import generate_sokoban
from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.sokoban.assignment import IMPOSSIBLE, assign_all, reassign_row, total_cost
from solver_actors.sokoban.search import MAX_BOXES, SokobanSearchSolver
from solver_actors.sokoban.table import SokobanSolver, build_table, solve_sokoban
from tests.solver_actors.brute_force_sokoban import all_states
from tests.support.rooms import FIXED, long_way_round, random_room, rooms

GAME = Sokoban()
BOXES_AND_FLOOR = ((1, 36), (2, 20), (3, 12))
"""Number of boxes and most floor cells of the rooms that are searched from every state."""


def every_state(seed: int) -> list[SokobanState]:
    num_boxes, max_floor = BOXES_AND_FLOOR[seed % len(BOXES_AND_FLOOR)]
    room = random_room(seed, num_boxes=num_boxes, max_floor=max_floor)
    return [GAME.decode(text) for text in all_states(room)]


def table_costs(states: list[SokobanState]) -> np.ndarray:
    return SokobanSolver(build_table(states[0])).cost_to_go(states)


def search_costs(states: list[SokobanState], **options: int) -> np.ndarray:
    return SokobanSearchSolver(states[0].layout, **options).cost_to_go(states)


def search_of(text: str, **options: int) -> tuple[SokobanSearchSolver, SokobanState]:
    state = GAME.decode(text)
    return SokobanSearchSolver(state.layout, **options), state


def cost_of(text: str, **options: int) -> float:
    solver, state = search_of(text, **options)
    return float(solver.cost_to_go([state])[0])


def generated(side: int, num_boxes: int, seed: int) -> SokobanState:
    tier = Tier(
        name="test",
        rows=side,
        cols=side,
        num_pieces=num_boxes,
        turn_budget=1,
        min_cost=1,
        max_cost=999,
    )
    return generate_sokoban(tier, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(60))
def test_search_equals_the_table_on_every_state(seed: int) -> None:
    states = every_state(seed)
    # The search for each starts anew: nothing is known from the one before.
    found = [search_costs([state])[0] for state in states]
    np.testing.assert_array_equal(found, table_costs(states))


@pytest.mark.parametrize("seed", range(60))
def test_what_the_search_remembers_does_not_change_its_costs(seed: int) -> None:
    states = every_state(seed)
    np.testing.assert_array_equal(search_costs(states), table_costs(states))


@pytest.mark.parametrize("seed", range(60))
def test_a_search_on_a_small_budget_is_right_or_unknown(seed: int) -> None:
    states = every_state(seed)
    expected = table_costs(states)
    found = search_costs(states, budget_nodes=4)
    is_known = ~np.isnan(found)
    np.testing.assert_array_equal(found[is_known], expected[is_known])


def test_small_budgets_leave_some_costs_unknown_and_find_others() -> None:
    found = np.concatenate([search_costs(every_state(seed), budget_nodes=4) for seed in range(12)])
    assert 0.05 < np.isnan(found).mean() < 0.95
    assert np.isinf(found).any()


@pytest.mark.parametrize(("side", "num_boxes"), [(6, 2), (7, 2), (7, 3), (6, 3)])
def test_search_equals_the_table_on_generated_rooms(side: int, num_boxes: int) -> None:
    states = [generated(side, num_boxes, seed) for seed in range(50)]
    found = [search_costs([state])[0] for state in states]
    assert found == [table_costs([state])[0] for state in states]


@pytest.mark.parametrize(("num_boxes", "seed"), [(4, 3), (4, 5), (5, 2), (5, 9)])
def test_best_actions_solve_a_large_room_in_exactly_n_steps(num_boxes: int, seed: int) -> None:
    state = generated(10, num_boxes, seed)
    solver = solve_sokoban(state)
    assert isinstance(solver, SokobanSearchSolver)
    cost = solver.cost_to_go([state])[0]
    assert np.isfinite(cost)
    while (action := solver.best_action(state)) is not None:
        state = GAME.apply(state, action).state
        cost -= 1
        assert solver.cost_to_go([state])[0] == cost
    assert GAME.status(state) is Status.WON
    assert cost == 0


def test_states_on_the_way_found_are_known_without_another_search() -> None:
    solver, state = search_of("______\n_X__O_\nP_____")
    solver.cost_to_go([state])
    kept = solver.memory_bytes
    for action in ("Up", "Right", "Right"):
        state = GAME.apply(state, action).state
    assert solver.cost_to_go([state])[0] == 1
    assert solver.memory_bytes == kept


def test_memory_grows_with_what_is_remembered() -> None:
    solver, state = search_of("______\n_X__O_\nP_____")
    empty = solver.memory_bytes
    solver.cost_to_go([state])
    assert solver.memory_bytes > empty


def test_solver_pickles_with_what_it_knows() -> None:
    solver, state = search_of("______\n_X__O_\nP_____")
    solver.cost_to_go([state])
    copy = pickle.loads(pickle.dumps(solver))
    assert copy.memory_bytes == solver.memory_bytes
    assert copy.action_costs(state) == solver.action_costs(state)


def test_search_out_of_budget_is_unknown_and_neither_dead_nor_with_a_best_action() -> None:
    room = GAME.encode(generated(10, 4, 0))
    solver, state = search_of(room, budget_nodes=3)
    assert np.isnan(solver.cost_to_go([state])[0])
    assert not solver.is_dead(state)
    assert solver.best_action(state) is None
    assert cost_of(room) > 0


def test_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"budget_nodes.*1.*0"):
        search_of("PXO", budget_nodes=0)


def test_state_of_another_layout_is_refused() -> None:
    solver, state = search_of("P_X_O")
    with pytest.raises(ValueError, match="another layout"):
        solver.cost_to_go([state, GAME.decode("PXO")])


def test_cost_of_no_states_is_empty() -> None:
    assert search_of("P_X_O")[0].cost_to_go([]).shape == (0,)


DEAD_AT_SIGHT = {
    "corner": "X___\n_P__\n__O_",
    "edge without a target": "____\nX_P_\n____\n__O_",
    "block of four": "_____\n_XXP_\n_XX__\nOOOO_",
    "pair at a wall": "______\n__##__\n_PXX__\n______\n_O__O_",
    "box that holds one on its target": "______\n_#X#__\n_#*#__\n_P____\n____O_",
    "two boxes at the top for one target": "_X_X_O\n__P___\n______\n____O_",
}
FREE = {
    "block of four on targets": "______\n_**P__\n_**X__\n____O_",
    "pair at a wall on targets": "______\n__##__\n_P**__\n______\n_X__O_",
    "pair that can be pushed apart": "______\n__#___\n_PXX__\n______\n_O__O_",
    "box in a corner on its target": "*___\n_X__\n_P__\n_O__",
}


@pytest.mark.parametrize("name", DEAD_AT_SIGHT)
def test_death_is_seen_without_a_search(name: str) -> None:
    solver, state = search_of(DEAD_AT_SIGHT[name])
    assert solver.lower_bound(state) == np.inf
    assert np.isinf(table_costs([state])[0])


@pytest.mark.parametrize("name", FREE)
def test_position_that_only_looks_stuck_is_not_called_dead(name: str) -> None:
    solver, state = search_of(FREE[name])
    assert np.isfinite(solver.lower_bound(state))
    assert solver.cost_to_go([state])[0] == table_costs([state])[0] < np.inf


@FIXED
@given(rooms())
def test_bound_is_admissible_and_falls_by_one_a_step_at_most(room: str) -> None:
    states = [GAME.decode(text) for text in all_states(room)][::7]
    solver = SokobanSearchSolver(states[0].layout)
    bounds = [solver.lower_bound(state) for state in states]
    costs = table_costs(states)
    assert all(bounds <= costs)
    for state, bound in zip(states, bounds, strict=True):
        for action in GAME.scored_actions(state) if np.isfinite(bound) else ():
            assert solver.lower_bound(GAME.apply(state, action).state) >= bound - 1


ENTRIES = st.integers(0, 9) | st.just(IMPOSSIBLE)
MATRICES = st.integers(1, 6).flatmap(
    lambda size: st.lists(
        st.lists(ENTRIES, min_size=size, max_size=size), min_size=size + 1, max_size=size + 1
    )
)
"""``[K + 1][K]``: a cost matrix and one more row."""


def least_total(costs: np.ndarray) -> int:
    return min(sum(costs[range(len(costs)), order]) for order in permutations(range(len(costs))))


@FIXED
@given(MATRICES)
def test_assignment_equals_the_best_of_all_permutations(rows: list[list[int]]) -> None:
    costs = np.array(rows[:-1], np.int32)
    assignment, _ = assign_all(costs)
    assert sorted(assignment.row_of) == list(range(len(costs)))
    found, expected = total_cost(costs, assignment), least_total(costs)
    assert found == expected or min(found, expected) >= IMPOSSIBLE


@FIXED
@given(MATRICES, st.integers(0, 5))
def test_changed_row_gives_the_assignment_of_the_changed_costs(
    rows: list[list[int]], row: int
) -> None:
    costs = np.array(rows[:-1], np.int32)
    assignment, _ = assign_all(costs)
    before = [array.copy() for array in assignment]
    changed_costs = costs.copy()
    changed_costs[row % len(costs)] = rows[-1]
    changed, _ = reassign_row(changed_costs, row % len(costs), assignment)
    found, expected = total_cost(changed_costs, changed), least_total(changed_costs)
    assert found == expected or min(found, expected) >= IMPOSSIBLE
    assert all(np.array_equal(*pair) for pair in zip(before, assignment, strict=True))


def test_room_within_the_cap_has_a_table_and_one_above_it_a_search() -> None:
    # A box and its target in 12 rows of 100 cells: 1.4 million states; of 200: 5.8 million.
    small, large = (
        "\n".join(["P_X_O" + "_" * (cols - 5), *["_" * cols] * 11]) for cols in (100, 200)
    )
    kinds = [type(solve_sokoban(GAME.decode(text))) for text in (small, large)]
    assert kinds == [SokobanSolver, SokobanSearchSolver]


def test_maze_whose_costs_exceed_the_table_is_searched() -> None:
    state = GAME.decode(long_way_round(num_stairs=19, num_folds=8))
    with pytest.raises(OverflowError, match="32767"):
        build_table(state)
    assert solve_sokoban(state).cost_to_go([state])[0] == 36_189


def test_small_maze_of_the_same_kind_costs_what_the_table_says() -> None:
    state = GAME.decode(long_way_round(num_stairs=3, num_folds=2))
    assert search_costs([state]) == table_costs([state]) == 513


def test_more_boxes_than_can_be_assigned_are_dead_at_sight_or_unknown() -> None:
    num_boxes = MAX_BOXES + 1
    spaced = "_X" * num_boxes + "_"
    free = "\n".join(
        ["P" + "_" * (2 * num_boxes), spaced, "_O" * num_boxes + "_", "_" * len(spaced)]
    )
    assert np.isnan(cost_of(free))
    assert np.isinf(cost_of(free.replace("_X", "X_", 1)))
