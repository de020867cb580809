"""Distillation: the teacher's log-probability as advantage, and its own actions as text."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.algorithms.credit import add_advantages, add_credit
from cast_ray.algorithms.distillation import TEACHER_SCHEMA, teacher_demonstrations
from cast_ray.config.learning import AdvantageConfig
from cast_ray.config.load import load_config
from cast_ray.games import get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.specs import episode_groups
from cast_ray.rollout.trajectory import (
    TeacherTurns,
    Trajectory,
    check_schema,
    to_rollout_batch,
    with_costs,
)
from solver_actors.oracle import Oracle
from solver_actors.sokoban.table import solve_sokoban
from solver_actors.teacher import SoftTeacher
from tests.support.credit_tables import changed
from tests.support.scripted import ScriptedPolicy, build_test_policy, mixed_play, play


def taught(*rows: tuple[Trajectory, list[float], list[float]]) -> pa.Table:
    """Return trajectories with their costs and teacher log-probabilities."""
    logprobs = np.array([value for _, _, values in rows for value in values])
    batch = with_costs(
        to_rollout_batch([row for row, _, _ in rows]),
        np.array([cost for _, costs, _ in rows for cost in costs]),
        TeacherTurns(logprobs=logprobs, actions=("Up",) * len(logprobs)),
    )
    return pa.Table.from_batches([batch])


# Reverse: the advantage.


def test_turn_advantage_is_the_teachers_logprob_and_nothing_else() -> None:
    # Rewards that differ, and costs that would earn much: neither counts.
    table = taught(
        (changed(2, group=0, episode=0, reward=1.0), [2.0, 1.0, 0.0], [-0.25, -3.0]),
        (changed(1, group=0, episode=1, reward=0.0), [2.0, math.inf], [-7.0]),
    )
    batch, _ = add_advantages(table, AdvantageConfig(alpha=5.0), distillation="reverse")
    assert batch["turn_advantages"].to_pylist() == [[-0.25, -3.0], [-7.0]]
    assert batch["token_advantages"].to_pylist()[0] == [0, -0.25, -0.25, 0, -3.0, -3.0]


def test_turn_that_the_teacher_does_not_know_is_left_as_it_is_and_counted() -> None:
    row = changed(3, group=0, episode=0, reward=1.0)
    table = taught((row, [3.0, 2.0, 1.0, 0.0], [-0.5, math.nan, -1.0]))
    batch, summary = add_advantages(table, AdvantageConfig(alpha=0.0), distillation="reverse")
    assert batch["turn_advantages"].to_pylist() == [[-0.5, 0.0, -1.0]]
    assert summary.unknown_costs == 1


@pytest.mark.parametrize("mode", ["none", "forward"])
def test_other_modes_leave_the_advantages_to_outcome_and_solver(mode: str) -> None:
    table = taught((changed(1, group=0, episode=0, reward=0.0), [2.0, 1.0], [math.nan]))
    batch, summary = add_advantages(table, AdvantageConfig(alpha=0.5), distillation=mode)
    np.testing.assert_allclose(batch["turn_advantages"].to_pylist(), [[0.5]], rtol=1e-7)
    assert summary.unknown_costs == 0


def test_algorithm_distill_reverse_uses_the_teacher() -> None:
    table = taught((changed(1, group=0, episode=0, reward=1.0), [1.0, 0.0], [-0.75]))
    batch, _ = add_credit(table, load_config(None, ["algorithm=distill_reverse"]), step=1)
    assert batch["turn_advantages"].to_pylist() == [[-0.75]]


# Forward: the text.


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def scored(tokenizer: ChatTokenizer) -> pa.Table:
    """A few episodes of mixed play, judged by a teacher; one turn is made unknown."""
    puzzles = build_puzzles(
        game="sokoban",
        tier="mini",
        count=3,
        seed=15,
        solve=lambda state: float(solve_sokoban(state).cost_to_go([state])[0]),
    )
    policy = ScriptedPolicy(tokenizer, mixed_play(tokenizer))
    groups = episode_groups(puzzles, attempts=3, step=1, seed=0, purpose="rollout")
    rollout = to_rollout_batch(
        [play(spec, policy, tokenizer) for group in groups for spec in group]
    )
    oracle = Oracle(max_bytes=2**20, teacher=SoftTeacher(temperature=1.0, rescue="cost"))
    table = pa.Table.from_batches([oracle.score(rollout)])
    actions = table["teacher_actions"].to_pylist()
    actions[1][0] = ""
    index = table.schema.get_field_index("teacher_actions")
    return table.set_column(index, table.schema.field(index), pa.array(actions))


def test_each_known_turn_is_a_conversation_that_ends_with_the_teachers_answer(
    scored: pa.Table, tokenizer: ChatTokenizer
) -> None:
    expected = []
    for row in scored.to_pylist():
        for turn, action in enumerate(row["teacher_actions"]):
            if action:
                before = row["token_ids"][: row["turn_starts"][turn]]
                answer = tokenizer.answer(f"```{action}```")
                mask = [0] * len(before) + [1] * len(answer)
                ids = before + answer
                expected.append({"token_ids": ids, "loss_mask": mask, "group": row["group"]})
    found = teacher_demonstrations(scored, tokenizer)
    check_schema(found, TEACHER_SCHEMA)
    assert found.to_pylist() == expected
    assert found.num_rows == sum(map(len, scored["effects"].to_pylist())) - 1


def test_demonstrated_action_is_one_that_the_game_reads_and_scores(
    scored: pa.Table, tokenizer: ChatTokenizer
) -> None:
    game = get_game("sokoban")
    found = iter(teacher_demonstrations(scored, tokenizer).to_pylist())
    for row in scored.to_pylist():
        for board, action in zip(row["states"], row["teacher_actions"], strict=False):
            if action:
                text = next(found)
                start = text["loss_mask"].index(1)
                read = game.parse(tokenizer.text(text["token_ids"][start:]))
                assert read == action
                assert read in game.scored_actions(game.decode(board))


def test_answer_ends_with_the_end_of_turn_token(scored: pa.Table, tokenizer: ChatTokenizer) -> None:
    for row in teacher_demonstrations(scored, tokenizer).to_pylist():
        assert row["token_ids"][-1] == tokenizer.end_ids[0]
        assert row["loss_mask"][-1] == 1


def test_rows_of_a_slice_are_its_own(scored: pa.Table, tokenizer: ChatTokenizer) -> None:
    part = teacher_demonstrations(scored.slice(3, 2), tokenizer)
    groups = scored["group"].to_pylist()
    whole = teacher_demonstrations(scored, tokenizer).to_pylist()
    assert set(part["group"].to_pylist()) == {groups[3]}
    assert all(row in whole for row in part.to_pylist())


def test_table_without_a_teacher_gives_no_row(scored: pa.Table, tokenizer: ChatTokenizer) -> None:
    rollout = to_rollout_batch([changed(2, group=0, episode=0, reward=0.0)])
    table = pa.Table.from_batches([with_costs(rollout, np.zeros(3))])
    assert teacher_demonstrations(table, tokenizer).num_rows == 0
