"""Every algorithm from played episodes to moved weights: real credit, real learner, no engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from cast_ray.algorithms.credit import add_credit
from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.load import load_config
from cast_ray.games.generators import build_puzzles
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.settings import UpdateStats
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.training.update import distill, update
from cast_ray.training.workers import learner_settings
from cast_ray.weights.manifest import read_weights
from solver_actors.sokoban.table import solve_sokoban
from tests.support.played import scored_table
from tests.support.scripted import build_test_policy

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

NUM_GROUPS, GROUP_SIZE = 4, 4
SMALL = (
    f"rollout.puzzles_per_step={NUM_GROUPS}",
    f"rollout.group_size={GROUP_SIZE}",
    "resources.learner_ranks=1",
    "resources.cpus_per_learner_rank=0.1",
    "learner.dtype=float32",
    "learner.zero_stage=0",
    # The logprobs of the scripted policy are made up: their ratios mean nothing.
    "objective.rollout_correction=none",
)


class Steps:
    """Takes one step after the other of a learner that begins afresh with each."""

    def __init__(self, tokenizer: ChatTokenizer, model_dir: Path, work_dir: Path) -> None:
        self._tokenizer, self._work_dir, self._version = tokenizer, work_dir, 0
        config = load_config(None, SMALL)
        self.learner = LearnerGroup(learner_settings(config, model_dir=model_dir), config.resources)
        self._start = work_dir / "start"
        self.learner.save_checkpoint(self._start, {})
        self.before = self._weights()

    def take(self, *overrides: str) -> tuple[dict[str, torch.Tensor], list[UpdateStats]]:
        """Return the weights after one step from the first ones, and what its updates were like."""
        config = load_config(None, [*SMALL, *overrides])
        self.learner.load_checkpoint(self._start)
        puzzles = build_puzzles(
            game="sokoban",
            tier="mini",
            count=NUM_GROUPS,
            seed=15,
            solve=lambda state: float(solve_sokoban(state).cost_to_go([state])[0]),
        )
        scored = scored_table(self._tokenizer, puzzles, config, step=1, attempts=GROUP_SIZE)
        batch, _ = add_credit(scored, config, step=1)
        if config.distillation.mode == "forward":
            stats = distill(self.learner, batch, self._tokenizer, config, step=1)
        else:
            reference = ray.put(batch)
            start = self.learner.logprobs(reference)
            groups = batch["group"].to_numpy()
            stats = update(self.learner, reference, groups, start, config, step=1)
        return self._weights(), stats

    def _weights(self) -> dict[str, torch.Tensor]:
        self._version += 1
        manifest = self.learner.publish_weights(
            self._work_dir / "weights", version=self._version, dtype="float32"
        )
        return read_weights(manifest)


@pytest.fixture(scope="module")
def steps(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    work_dir = tmp_path_factory.mktemp("work")
    (work_dir / "weights").mkdir()
    tokenizer = build_test_policy(work_dir / "model")
    steps = Steps(tokenizer, work_dir / "model", work_dir)
    yield steps
    steps.learner.close()


def is_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_moves_the_weights_and_takes_the_same_step_again(
    steps: Steps, name: str
) -> None:
    weights, stats = steps.take(f"algorithm={name}")
    again, _ = steps.take(f"algorithm={name}")

    assert [one.is_applied for one in stats] == [True, True]
    assert all(np.isfinite([one.loss, one.grad_norm]).all() for one in stats)
    assert not is_same(weights, steps.before)
    assert is_same(weights, again)


def test_no_two_algorithms_take_the_same_step(steps: Steps) -> None:
    taken = {name: steps.take(f"algorithm={name}")[0] for name in ALGORITHMS}

    alike = [(a, b) for a, b in itertools.combinations(taken, 2) if is_same(taken[a], taken[b])]
    assert not alike


def test_alpha_of_zero_is_dapo_bit_for_bit(steps: Steps) -> None:
    dapo, dapo_stats = steps.take("algorithm=dapo")
    cast, cast_stats = steps.take("algorithm=cast", "advantage.alpha=0")
    guided, _ = steps.take("algorithm=cast")

    assert is_same(cast, dapo)
    assert [one.loss for one in cast_stats] == [one.loss for one in dapo_stats]
    assert not is_same(guided, dapo)


def test_divergence_is_measured_and_counts_from_the_second_update_on(steps: Steps) -> None:
    """The first is taken at the reference itself, where the divergence and its gradient are 0."""
    _, stats = steps.take("algorithm=grpo")
    strong, _ = steps.take("algorithm=grpo", "objective.kl_coefficient=10")
    weak, _ = steps.take("algorithm=grpo", "objective.kl_coefficient=0")

    assert stats[0].kl == pytest.approx(0, abs=1e-9)
    assert stats[1].kl > 0
    assert not is_same(strong, weak)


def test_entropy_bonus_leaves_more_entropy(steps: Steps) -> None:
    bonus = ("learner.mini_batches=1", "advantage.alpha=0")
    plain, plain_stats = steps.take(*bonus)
    wide, wide_stats = steps.take(*bonus, "objective.entropy_coefficient=1")

    assert wide_stats[0].loss == pytest.approx(
        plain_stats[0].loss - wide_stats[0].entropy, rel=1e-5
    )
    assert not is_same(plain, wide)


def test_forward_distillation_learns_the_teachers_text(steps: Steps) -> None:
    _, stats = steps.take("algorithm=distill_forward", "learner.lr=0.01")

    assert stats[1].loss < stats[0].loss
