"""What the benchmarks give to TRL and gym-sokoban is what our own side has.

The peers themselves play where they are installed: ``pip install -e '.[bench]'``.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from benchmarks.gym import CELLS, PIXELS, GymSokoban
from benchmarks.trl_loop import GROUP_SIZE, TrlSteps, rollouts_of
from cast_ray.config.train import TrainConfig
from cast_ray.games.generators import build_puzzles
from cast_ray.learner.batching import loss_mask, row_offsets
from cast_ray.training.workers import learner_settings
from solver_actors.registry import StartSolver
from tests.support.played import scored_table
from tests.support.scripted import build_test_policy

BOARD = "######\n#P___#\n#_X__#\n#_O__#\n######"
WINS = ["Right", "Down"]
SOLVER = StartSolver("sokoban")
NO_EXTRA = "needs the extra bench"


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


@pytest.fixture(scope="module")
def table(policy_dir: Path) -> pa.Table:
    boards = build_puzzles(game="sokoban", tier="mini", count=2, seed=0, solve=SOLVER.cost)
    tokenizer = build_test_policy(policy_dir)
    return scored_table(tokenizer, boards, TrainConfig(), step=1, attempts=GROUP_SIZE)


def test_trl_gets_every_token_and_whose_it_is(table: pa.Table) -> None:
    given, offsets, mask = rollouts_of(table), row_offsets(table), loss_mask(table)
    tokens = table["token_ids"].to_pylist()
    for row, (first, last) in enumerate(itertools.pairwise(offsets)):
        prompt, rest = given["prompt_ids"][row], given["completion_ids"][row]
        assert prompt + rest == tokens[row]
        written = [0] * len(prompt) + given["env_mask"][row]
        assert written == mask[first:last].astype(int).tolist()
        # The prompt ends where the policy begins, and observations lie between its answers.
        assert given["env_mask"][row][0] == 1
        assert len(given["logprobs"][row]) == len(rest)
    assert any(0 in row for row in given["env_mask"])


def test_trl_takes_steps_that_move_the_weights(policy_dir: Path, table: pa.Table) -> None:
    pytest.importorskip("trl", reason=NO_EXTRA)
    settings = learner_settings(TrainConfig(), model_dir=policy_dir)
    objective = replace(TrainConfig().objective, rollout_correction="none")
    steps = TrlSteps(settings, objective, table)
    before = [weight.clone() for weight in steps.trainer.model.parameters()]
    assert len(steps.step_seconds(2)) == 2
    after = list(steps.trainer.model.parameters())
    assert not any(map(torch.equal, before, after))


@pytest.mark.parametrize("observations", [PIXELS, CELLS])
def test_gym_sokoban_wins_where_we_win(observations: str) -> None:
    pytest.importorskip("gym_sokoban", reason=NO_EXTRA)
    peer = GymSokoban()
    peer.play(BOARD, WINS[:1], observations=observations)
    assert not peer.is_won
    peer.play(BOARD, WINS, observations=observations)
    assert peer.is_won
    with pytest.raises(AssertionError, match="won before"):
        peer.play(BOARD, [*WINS, "Up"], observations=observations)
