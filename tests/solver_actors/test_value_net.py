"""A value network in the place of a solver: its estimates, what it may never say, the credit.

The networks here are not trained: one constant or one set of biases says what each check needs.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.algorithms.credit import add_advantages
from cast_ray.config.learning import AdvantageConfig
from cast_ray.errors import ModelError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.game import Status
from cast_ray.games.generators import get_generator
from cast_ray.games.minesweeper_board import MinesweeperState
from cast_ray.rollout.trajectory import costs_of, estimates_of, to_rollout_batch
from solver_actors.oracle import Oracle
from solver_actors.sokoban.table import solve_sokoban
from solver_actors.teacher import SoftTeacher
from solver_actors.value_net.network import QNetwork, shape_for
from solver_actors.value_net.scale import (
    LossTest,
    ValueNetOracle,
    ValueScale,
    has_loss_test,
)
from solver_actors.value_net.solver import MARGIN, ValueNetSolver, value_net_entry
from tests.support.made_up_run import play, scripted
from tests.support.rooms import FIXED, rooms

SMALL = {"d_model": 16, "num_heads": 2, "num_layers": 1, "output_size": 24}
SOLVED, FAILURE = -2.0, 3.0
"""Costs of won and lost states: -2 * 1 and -2 * -1.5."""
LOT = "............AA..B.....B............."
"""Three actions free the way or win: the red car may slide by 1 or 2, B up by 1 or 2, down by 1."""


def network(
    game: str, tier: str = "mini", *, bias: Sequence[float] | float | None = None
) -> QNetwork:
    """Return a random network, or one that says ``bias`` of every board."""
    torch.manual_seed(0)
    made = QNetwork(shape_for(game, tier, **SMALL)).eval()
    if bias is not None:
        with torch.no_grad():
            made.head.weight.zero_()
            made.head.bias.copy_(torch.as_tensor(bias).expand(len(made.shape.actions)))
    return made


def oracle_of(made: QNetwork, **scale: float) -> ValueNetOracle:
    return ValueNetOracle(network=made, scale=ValueScale(**scale))


def solver_of(made: QNetwork, board: str, **scale: float) -> tuple[ValueNetSolver, object]:
    """Return the solver of a board, and the board as a state."""
    state = get_game(made.shape.game).decode(board)
    solver = value_net_entry(oracle_of(made, **scale)).build(state)
    assert isinstance(solver, ValueNetSolver)
    return solver, state


def legal_biases(made: QNetwork, board: str, *, legal: float, illegal: float) -> list[float]:
    game = get_game(made.shape.game)
    allowed = set(game.scored_actions(game.decode(board)))
    return [legal if action in allowed else illegal for action in made.shape.actions]


@pytest.mark.parametrize("legal", [-0.25, 0.0, 0.5])
def test_value_is_the_largest_legal_q_however_large_the_others(legal: float) -> None:
    made = network("rush_hour")
    made = network("rush_hour", bias=legal_biases(made, LOT, legal=legal, illegal=0.9))
    solver, state = solver_of(made, LOT)
    assert solver.cost_to_go([state]).tolist() == [-2 * legal]
    assert solver.best_action(state) in get_game("rush_hour").scored_actions(state)  # type: ignore[arg-type]


def test_a_network_of_zeros_has_values_of_zero() -> None:
    solver, state = solver_of(network("rush_hour", bias=0.0), LOT)
    assert solver.cost_to_go([state]).tolist() == [0.0]
    assert solver.best_action(state) == "A+1"


@pytest.mark.parametrize(
    ("game", "won"),
    [("sokoban", "P__*"), ("rush_hour", "................AA..................")],
)
def test_won_state_has_a_value_of_its_own(game: str, won: str) -> None:
    solver, state = solver_of(network(game, bias=50.0), won)
    assert solver.cost_to_go([state]).tolist() == [SOLVED]
    assert solver.best_action(state) is None
    assert not solver.is_dead(state)


@pytest.mark.parametrize(("bias", "value"), [(7.0, 1 - MARGIN), (-7.0, -1.5 + MARGIN)])
def test_values_stay_between_those_of_loss_and_win(bias: float, value: float) -> None:
    solver, state = solver_of(network("rush_hour", bias=bias), LOT)
    assert solver.cost_to_go([state]).tolist() == [-2 * value]


@pytest.mark.parametrize("value", [-0.9, 0.0, 0.3, 7.0])
def test_a_lost_box_costs_something_whatever_the_value(value: float) -> None:
    rules = get_game("sokoban")
    room = "######\n#____#\n#_XP_#\n#____#\n#___O#\n######"
    solver, state = solver_of(network("sokoban", bias=value), room)
    steps = [state, rules.apply(state, "Left").state]  # type: ignore[arg-type]
    assert solver.is_dead(steps[1])
    assert not solver.is_dead(steps[0])
    before, after = solver.cost_to_go(steps)
    assert after == FAILURE
    assert before - after < 0


def test_a_hit_mine_is_a_loss_and_an_open_field_a_win() -> None:
    rules = get_game("minesweeper")
    state = get_generator("minesweeper")(rules.tiers["mini"], np.random.default_rng(0))
    solver = value_net_entry(oracle_of(network("minesweeper", bias=0.2))).build(state)
    assert isinstance(state, MinesweeperState)
    ends = {Status.LOST: FAILURE, Status.WON: SOLVED, Status.PLAYING: -0.4}
    seen = set()
    for action in rules.scored_actions(state):
        after = rules.apply(state, action).state
        seen.add(rules.status(after))
        assert solver.cost_to_go([after])[0] == pytest.approx(ends[rules.status(after)])
    assert {Status.LOST, Status.PLAYING} <= seen


def test_where_nothing_is_legal_nothing_can_be_won() -> None:
    walled_in = "xxxxxxxxxxxxAAxxxxxxxxxxxxxxxxxxxxxx"
    solver, state = solver_of(network("rush_hour", bias=0.5), walled_in)
    assert solver.cost_to_go([state]).tolist() == [FAILURE]
    assert solver.best_action(state) is None


def test_boards_of_up_to_nine_vehicles_are_read_and_ten_refused() -> None:
    made = network("rush_hour", "id")
    nine = "BBCCDDEEFFGGAA....HH..II............"
    solver, state = solver_of(made, nine)
    assert np.isfinite(solver.cost_to_go([state])).all()
    solver, state = solver_of(made, nine[:-6] + "JJ....")
    with pytest.raises(PuzzleError, match=r"vehicle J.*row 5, column 0"):
        solver.cost_to_go([state])


def test_board_of_another_size_is_refused() -> None:
    solver, state = solver_of(network("sokoban"), "P_X_O")
    with pytest.raises(PuzzleError, match=r"6 x 6.*1 x 5"):
        solver.cost_to_go([state])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_prediction_that_is_not_finite_is_refused_by_name(bad: float) -> None:
    solver, state = solver_of(network("rush_hour", bias=bad), LOT)
    with pytest.raises(ModelError, match=r"(nan|-?inf).*A-1.*'\.{12}AA"):
        solver.cost_to_go([state])


def test_states_are_asked_about_once_and_answered_in_order() -> None:
    made = network("rush_hour")
    solver, state = solver_of(made, LOT)
    rules = get_game("rush_hour")
    after = [rules.apply(state, action).state for action in rules.scored_actions(state)]  # type: ignore[arg-type]
    together = solver.cost_to_go([*after, state, *reversed(after)])
    asked: list[int] = []
    made.register_forward_pre_hook(lambda _, inputs: asked.append(len(inputs[0])))
    assert solver.cost_to_go([state]).tolist() == [together[len(after)]]
    assert list(solver.action_costs(state).values()) == together[: len(after)].tolist()
    assert together.tolist() == together[::-1].tolist()
    assert asked == []
    assert solver.memory_bytes > 300 * len(after)


def played(*answers: str) -> pa.RecordBatch:
    policy = scripted([f"```{answer}```" for answer in answers])
    exact = Oracle(max_bytes=2**20)
    return to_rollout_batch(
        [play(LOT, policy, turn_budget=len(answers), oracle=exact, game_name="rush_hour")]
    )


def test_credit_is_twice_the_gain_in_value() -> None:
    made = network("rush_hour")
    oracle = Oracle(max_bytes=2**20, estimator=value_net_entry(oracle_of(made)))
    scored = oracle.score(played("A+3", "B+1", "B+2", "A+1", "A+3"))
    (row,) = scored.to_pylist()
    assert row["effects"] == ["ineffective", "changed", "ineffective", "changed", "changed"]
    assert row["cost_status"] == ["unknown"] * 6
    assert np.isnan(costs_of(row)).all()
    solver, _ = solver_of(made, LOT)
    states = [get_game("rush_hour").decode(board) for board in row["states"]]
    values = solver.cost_to_go(states) / -2
    assert values[-1] == 1
    estimates = estimates_of(row)
    assert estimates is not None
    assert estimates.tolist() == (-2 * values).tolist()
    batch, summary = add_advantages(pa.Table.from_batches([scored]), AdvantageConfig(alpha=0.1))
    shifted = batch["shifted_advantages"][0].as_py()
    expected = 2 * np.diff(values) * [0, 1, 0, 1, 1]
    assert shifted == pytest.approx(expected.tolist())
    assert shifted[-1] > 0
    assert summary.unknown_costs == 0


def test_scale_stretches_the_credit_and_nothing_else() -> None:
    made, batch = network("rush_hour"), played("B+1", "A+4")
    found = []
    for scale in (2.0, 6.0):
        entry = value_net_entry(oracle_of(made, scale=scale))
        scored = pa.Table.from_batches([Oracle(max_bytes=2**20, estimator=entry).score(batch)])
        wide, _ = add_advantages(scored, AdvantageConfig(alpha=0.1))
        found.append(np.array(wide["shifted_advantages"][0].as_py()))
    np.testing.assert_allclose(found[1], 3 * found[0], rtol=1e-6)


def test_exact_solvers_leave_no_estimates() -> None:
    (row,) = Oracle(max_bytes=2**20).score(played("B+1", "A+4")).to_pylist()
    assert row["cost_estimates"] == [None] * 3
    assert estimates_of(row) is None


def test_a_teacher_can_follow_a_value_network() -> None:
    made = network("rush_hour")
    entry = value_net_entry(oracle_of(made))
    teacher = SoftTeacher(temperature=0.5, rescue="cost", are_estimates=True)
    scored = Oracle(max_bytes=2**20, estimator=entry, teacher=teacher).score(played("B+1", "A+4"))
    (row,) = scored.to_pylist()
    solver, state = solver_of(made, LOT)
    now = solver.cost_to_go([state])[0]
    weights = {a: np.exp((now - cost) / 0.5) for a, cost in solver.action_costs(state).items()}
    assert row["teacher_logprobs"][0] == pytest.approx(
        np.log(weights["B+1"] / sum(weights.values())), rel=1e-6
    )


@settings(parent=FIXED, max_examples=150)
@given(rooms(), st.integers(0, 2**32))
def test_what_the_loss_test_calls_lost_is_lost(room: str, seed: int) -> None:
    rules, rng = get_game("sokoban"), np.random.default_rng(seed)
    state = rules.decode(room)
    exact, seen = solve_sokoban(state), LossTest("sokoban")
    for _ in range(12):
        if seen.is_dead(state):
            assert exact.is_dead(state)
        actions = rules.scored_actions(state)
        if not actions or rules.status(state) is not Status.PLAYING:
            break
        state = rules.apply(state, str(rng.choice(actions))).state


def test_loss_test_travels_as_a_name() -> None:
    room = "######\n#____#\n#_XP_#\n#____#\n#___O#\n######"
    seen = LossTest("sokoban")
    rules = get_game("sokoban")
    lost = rules.apply(rules.decode(room), "Left").state
    assert seen.is_dead(lost)
    sent = pickle.dumps(seen)
    assert len(sent) < 200
    received = pickle.loads(sent)
    states = (lost, rules.decode(room), lost, rules.decode("P_X_O"))
    assert [received.is_dead(state) for state in states] == [True, False, True, False]
    assert [game for game in ("sokoban", "rush_hour", "minesweeper") if has_loss_test(game)] == [
        "sokoban"
    ]
