"""The soft-optimal teacher against a loop over actions, turn by turn, on real and odd boards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cast_ray.algorithms import advantages
from cast_ray.config.load import load_config
from cast_ray.games import get_game
from cast_ray.games.game import Effect
from cast_ray.rollout.trajectory import SCORED_SCHEMA, Trajectory, check_schema, to_rollout_batch
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.solver import Solver
from solver_actors.teacher import PuzzleTeacher, SoftTeacher, teacher_of
from tests.support.made_up_run import play, scripted
from tests.support.rooms import FIXED, random_room

ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"
MINES = "001+.\n112..\n.+...\n.+...\n+...."
"""The solver loses from here; most other guesses come out well."""
TEACHER = SoftTeacher(temperature=0.7, rescue="cost")


def naive_advantage(before: float, after: float, *, safe_cells: int, rescue: str) -> float:
    """Return the row of the table in SPEC, section 3, for an action that changes the state."""
    if math.isnan(before) or math.isnan(after):
        return math.nan
    if math.isfinite(before):
        return before - after if math.isfinite(after) else -before
    if math.isinf(after) or rescue == "zero":
        return 0.0
    return float(safe_cells) if after == 0 else after


def naive_row(t: Trajectory, teacher: SoftTeacher) -> list[float]:
    """Return log pi_S of each turn's action, one action after the other."""
    game, solver = (
        get_game(t.game),
        get_solver_entry(t.game).build(get_game(t.game).decode(t.puzzle)),
    )
    safe = get_game(t.game).rescue_value(t.puzzle)

    def cost(state: Any) -> float:  # Any: each game has a state type of its own
        return float(solver.cost_to_go([state])[0])

    found = []
    for turn, effect in enumerate(t.effects):
        state, after = game.decode(t.states[turn]), game.decode(t.states[turn + 1])
        earned = {
            action: naive_advantage(
                cost(state),
                cost(game.apply(state, action).state),
                safe_cells=safe,
                rescue=teacher.rescue,
            )
            for action in game.scored_actions(state)
        }
        total = sum(math.exp(value / teacher.temperature) for value in earned.values())
        if t.actions[turn] in earned and effect == "changed":
            own = earned[t.actions[turn]]
        elif effect == "changed":
            own = naive_advantage(cost(state), cost(after), safe_cells=safe, rescue=teacher.rescue)
        else:
            own = 0.0
        found.append(math.log(math.exp(own / teacher.temperature) / total))
    return found


def taught(trajectories: Sequence[Trajectory], teacher: SoftTeacher | None) -> list[dict[str, Any]]:
    oracle = Oracle(max_bytes=2**24, teacher=teacher)
    return oracle.score(to_rollout_batch(trajectories)).to_pylist()


def played(board: str, *answers: str, game: str = "sokoban", seed: int = 0) -> Trajectory:
    row = play(
        board,
        scripted(answers),
        turn_budget=len(answers),
        oracle=Oracle(max_bytes=2**24),
        game_name=game,
    )
    return replace(row, seed=seed)


def moves(*actions: str) -> list[str]:
    return [f"```{action}```" for action in actions]


# The equation.

SHIFTED = st.lists(st.integers(-40, 30), min_size=1, max_size=20)


@FIXED
@given(SHIFTED, st.sampled_from([0.5, 1.0, 3.0]))
def test_probabilities_are_proportional_to_the_exponential(values: list[int], tau: float) -> None:
    found = advantages.soft_optimal_logprobs(np.array(values, dtype=float), tau)
    total = sum(math.exp(value / tau) for value in values)
    expected = [math.log(math.exp(value / tau) / total) for value in values]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_worked_example_of_two_actions() -> None:
    # exp(1) / (exp(1) + exp(-1)) = 0.880797
    found = np.exp(advantages.soft_optimal_logprobs(np.array([1.0, -1.0]), 1.0))
    np.testing.assert_allclose(found, [0.880797, 0.119203], atol=1e-6)


def test_small_temperature_neither_overflows_nor_loses_the_best() -> None:
    found = advantages.soft_optimal_logprobs(np.array([1.0, -40.0, 1.0]), 1e-3)
    np.testing.assert_allclose(found, [-math.log(2), -41000 - math.log(2), -math.log(2)])


def test_one_unknown_advantage_makes_all_unknown() -> None:
    assert np.isnan(advantages.soft_optimal_logprobs(np.array([1.0, math.nan]), 1.0)).all()
    assert math.isnan(advantages.soft_optimal_log_normaliser(np.zeros(0), 1.0))


# Turns of real games.


@FIXED
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["Up", "Down", "Left", "Right", "well"]), min_size=1, max_size=8),
)
def test_turns_in_random_rooms_are_those_of_the_loop(seed: int, words: list[str]) -> None:
    board = random_room(seed, num_boxes=1, max_floor=14)
    assume("X" in board)  # else it is solved already
    row = played(board, *moves(*words))
    assume(
        all(get_game("sokoban").scored_actions(get_game("sokoban").decode(s)) for s in row.states)
    )
    (found,) = taught([row], TEACHER)
    np.testing.assert_allclose(found["teacher_logprobs"], naive_row(row, TEACHER), rtol=1e-9)


def mixed_game(seed: int) -> Trajectory:
    """Return a game of random reveals and flags on ``MINES``."""
    rng = np.random.default_rng(seed)
    cells = [divmod(int(cell), 5) for cell in rng.permutation(25)[:10]]
    verbs = rng.choice(["reveal", "flag"], p=[0.6, 0.4], size=len(cells))
    answers = moves(*(f"{verb} {r} {c}" for verb, (r, c) in zip(verbs, cells, strict=True)))
    return played(MINES, *answers, game="minesweeper")


@pytest.mark.parametrize("rescue", ["cost", "zero"])
@pytest.mark.parametrize("seed", range(6))
def test_minesweeper_turns_are_those_of_the_loop(seed: int, rescue: str) -> None:
    teacher = SoftTeacher(temperature=2.0, rescue=rescue)
    row = mixed_game(seed)
    (found,) = taught([row], teacher)
    np.testing.assert_allclose(found["teacher_logprobs"], naive_row(row, teacher), rtol=1e-9)


def test_those_games_hold_the_odd_rows_of_the_table() -> None:
    rows = taught([mixed_game(seed) for seed in range(6)], None)
    pairs = {p for row in rows for p in pairwise(row["cost_status"])}
    assert pairs >= {("infinite", "exact"), ("infinite", "infinite"), ("exact", "infinite")}
    turns = {turn for row in rows for turn in zip(row["actions"], row["effects"], strict=True)}
    assert {(action.split()[0], effect) for action, effect in turns} >= {
        ("flag", "changed"),
        ("reveal", "changed"),
        ("flag", "illegal"),
    }


def test_win_from_infinite_counts_as_many_moves_as_the_board_has_safe_cells() -> None:
    # The solver would reveal the mine, the first of two equal cells; the other one wins.
    (found,) = taught([played("1+\n1.", *moves("reveal 1 1"), game="minesweeper")], TEACHER)
    log_z = math.log(math.exp(3 / 0.7) + 1)
    np.testing.assert_allclose(found["teacher_logprobs"], [3 / 0.7 - log_z])


def test_turn_without_effect_counts_as_an_action_that_earns_nothing() -> None:
    # In the corner of ROOM only Right and Down move; both come one step nearer or go off.
    row = played(ROOM, *moves("Up", "nothing", "Right"))
    row = replace(row, effects=("ineffective", "truncated", "changed"))
    (found,) = taught([row], SoftTeacher(temperature=1.0, rescue="cost"))
    right, down = (1.0, 1.0)  # both ways around the box are equally long
    log_z = math.log(math.exp(right) + math.exp(down))
    np.testing.assert_allclose(found["teacher_logprobs"], [-log_z, -log_z, 1.0 - log_z])


def test_rows_of_several_puzzles_are_taught_as_alone() -> None:
    rows = [
        played(ROOM, *moves("Right", "Down", "Left"), seed=1),
        played("P_X_O", *moves("Right", "Left"), seed=2),
        played(ROOM, *moves("Down", "Right"), seed=3),
    ]
    columns = ("teacher_logprobs", "teacher_actions")
    alone = [[row[name] for name in columns] for t in rows for row in taught([t], TEACHER)]
    together = [[row[name] for name in columns] for row in taught(rows, TEACHER)]
    assert together == alone


def test_a_slice_of_a_batch_is_taught_like_its_rows() -> None:
    rows = [played(ROOM, *moves("Right", "Down"), seed=seed) for seed in range(4)]
    batch = to_rollout_batch(rows).slice(1, 2)
    found = Oracle(max_bytes=2**20, teacher=TEACHER).score(batch).to_pylist()
    assert [r["teacher_actions"] for r in found] == [
        r["teacher_actions"] for r in taught(rows[1:3], TEACHER)
    ]


# What is unknown.


class PartlyKnown:
    """A solver that knows every cost but those after one action of the start."""

    memory_bytes = 0

    def __init__(self, solver: Solver[Any], unknown: str) -> None:
        self._solver, self._unknown = solver, unknown

    def cost_to_go(self, states: Sequence[Any]) -> np.ndarray:
        return self._solver.cost_to_go(states)

    def action_costs(self, state: Any) -> dict[str, float]:
        costs = self._solver.action_costs(state)
        return {a: math.nan if a == self._unknown else cost for a, cost in costs.items()}

    def best_action(self, state: Any) -> str | None:
        return self._solver.best_action(state)

    def is_dead(self, state: Any) -> bool:
        return self._solver.is_dead(state)


def asked(board: str, solver: Solver[Any], effects: list[str], costs: list[float]) -> Any:
    game = get_game("sokoban")
    teacher = PuzzleTeacher(
        TEACHER, game="sokoban", solver=solver, states={board: game.decode(board)}
    )
    boards = [board] * (len(effects) + 1)
    return teacher.turns(boards, np.array(costs), effects, seed=0)


def solver_of(board: str) -> Solver[Any]:
    return get_solver_entry("sokoban").build(get_game("sokoban").decode(board))


def test_one_unknown_cost_of_the_state_makes_the_turn_unknown() -> None:
    solver = PartlyKnown(solver_of(ROOM), "Down")
    found = asked(ROOM, solver, ["changed", "invalid"], [5.0, 4.0, 4.0])
    assert np.isnan(found.logprobs).all()
    assert found.actions == ("", "")


def test_unknown_cost_before_the_action_makes_the_turn_unknown() -> None:
    found = asked(ROOM, solver_of(ROOM), ["invalid"], [math.nan, math.nan])
    assert np.isnan(found.logprobs).all()


def test_state_without_a_scored_action_is_unknown() -> None:
    walled = "#P#XO"
    found = asked(walled, solver_of(walled), [Effect.INEFFECTIVE], [math.inf, math.inf])
    assert np.isnan(found.logprobs).all()
    assert found.actions == ("",)


def test_decided_state_is_unknown() -> None:
    solved = "P_*"
    found = asked(solved, solver_of(solved), [Effect.INVALID], [0.0, 0.0])
    assert np.isnan(found.logprobs).all()


def test_without_a_teacher_the_columns_are_null_and_empty() -> None:
    batch = Oracle(max_bytes=2**20).score(to_rollout_batch([played(ROOM, *moves("Right", "Up"))]))
    check_schema(batch, SCORED_SCHEMA)
    assert batch.column("teacher_logprobs").to_pylist() == [[None, None]]
    assert batch.column("teacher_actions").to_pylist() == [["", ""]]


# What is drawn.


def test_drawn_actions_have_the_teachers_frequencies() -> None:
    draws = 4000
    rows = [played(ROOM, *moves("Up"), seed=seed) for seed in range(draws)]
    teacher = SoftTeacher(temperature=4.0, rescue="cost")
    counts = Counter(row["teacher_actions"][0] for row in taught(rows, teacher))
    assert counts.keys() == {"Right", "Down"}
    # Two equally good ways: each half of the draws, within four standard deviations.
    assert abs(counts["Right"] - draws / 2) < 4 * math.sqrt(draws / 4)


def test_less_likely_action_is_drawn_less_often() -> None:
    board = "P_X_O_"
    rows = [played(board, *moves("Right", "Up"), seed=seed) for seed in range(2000)]
    counts = Counter(row["teacher_actions"][1] for row in taught(rows, TEACHER))
    right = 1 / (1 + math.exp(-2 / 0.7))  # Right earns 1, Left -1
    deviation = math.sqrt(2000 * right * (1 - right))
    assert abs(counts["Right"] - 2000 * right) < 4 * deviation


def test_draws_follow_from_the_trajectory_and_the_turn() -> None:
    same = played(ROOM, *moves(*["Up"] * 12), seed=7)
    first, second = (taught([same], TEACHER)[0]["teacher_actions"] for _ in range(2))
    other = taught([replace(same, seed=8)], TEACHER)[0]["teacher_actions"]
    assert first == second
    assert first != other
    assert set(first) == {"Right", "Down"}  # each turn draws anew on the same board


# Which runs have one.


def test_only_distillation_asks_a_teacher() -> None:
    assert teacher_of(load_config(None, [])) is None
    config = load_config(
        None, ["algorithm=distill_reverse", "distillation.temperature=0.5", "advantage.rescue=zero"]
    )
    assert teacher_of(config) == SoftTeacher(temperature=0.5, rescue="zero")
