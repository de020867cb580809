"""A step's updates: the same whether its trajectories were just played or come from the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray

from cast_ray.algorithms.distillation import teacher_demonstrations
from cast_ray.config.train import TrainConfig
from cast_ray.errors import LearnerError
from cast_ray.learner.batching import split_into_mini_batches
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.logprob_check import LogprobDifference, logprob_difference
from cast_ray.learner.settings import UpdateStats
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.seeds import derive_seed


def update(
    learner: LearnerGroup,
    batch: ray.ObjectRef,
    groups: np.ndarray,
    start_logprobs: np.ndarray,
    config: TrainConfig,
    *,
    step: int,
) -> list[UpdateStats]:
    """Take the step's optimizer updates, one per mini-batch of complete groups."""
    objective = config.objective
    start = ray.put(start_logprobs)
    reference = None
    if objective.kl_coefficient:
        # Once per step: every rank reads the same copy.
        reference = ray.put(learner.reference_logprobs(batch))
    return [
        learner.update(batch, rows, objective, start, reference)
        for rows in _mini_batches(groups, config, step)
    ]


class SkippedUpdates:
    """Counts consecutive updates that were not finite, across the steps of a run."""

    def __init__(self, *, most: int, in_a_row: int = 0) -> None:
        """Take ``learner.max_skipped_updates``, and the count of a resumed run."""
        self._most = most
        self.in_a_row = in_a_row

    def judge(self, updates: Sequence[UpdateStats], inspection: Path) -> None:
        """Count a step's updates; stop the run if there are too many in a row.

        Args:
            updates: of the step.
            inspection: where the step's trajectories are kept if the run stops.

        Raises:
            LearnerError: too many in a row were skipped.
        """
        for stats in updates:
            self.in_a_row = 0 if stats.is_applied else self.in_a_row + 1
            if self.in_a_row >= self._most:
                raise LearnerError(
                    f"{self.in_a_row} updates in a row were skipped: loss or gradient were not "
                    f"finite (loss {stats.loss}). The weights are unchanged. The last batch is in "
                    f"{inspection}: look at its advantages and logprobs"
                )


def distill(
    learner: LearnerGroup,
    batch: pa.Table,
    tokenizer: ChatTokenizer,
    config: TrainConfig,
    *,
    step: int,
) -> list[UpdateStats]:
    """Take the step's updates on the teacher's own actions: forward distillation.

    Raises:
        TrajectoryError: fewer groups have an action of the teacher than there are mini-batches.
    """
    table = teacher_demonstrations(batch, tokenizer)
    reference = ray.put(table)
    return [
        learner.supervised_update(reference, rows, lr=config.learner.lr)
        for rows in _mini_batches(table["group"].to_numpy(), config, step)
    ]


def _mini_batches(groups: np.ndarray, config: TrainConfig, step: int) -> list[np.ndarray]:
    """Return the rows of each of a step's mini-batches, from the group of each row."""
    return split_into_mini_batches(
        groups,
        num_mini_batches=config.learner.mini_batches,
        seed=derive_seed(config.seed, "mini-batches", step),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The result of a step's updates."""

    difference: LogprobDifference
    updates: list[UpdateStats]
    seconds: float


def learn(
    learner: LearnerGroup,
    batch: pa.Table,
    tokenizer: ChatTokenizer,
    config: TrainConfig,
    *,
    step: int,
    check: Callable[[LogprobDifference], None] = lambda difference: None,
) -> Learned:
    """Take a step's updates; they depend on the weights and the arguments alone.

    Args:
        learner: holds the weights of the step's start.
        batch: ``BATCH_SCHEMA``.
        tokenizer: writes the teacher's actions in forward distillation.
        config: of the run.
        step: seeds the split into mini-batches.
        check: called before the first update with how engine and learner differ; may raise.

    Raises:
        LearnerLost: a rank died or hangs.
        LearnerError: the learner failed.
    """
    started = time.perf_counter()
    reference = ray.put(batch)
    start_logprobs = learner.logprobs(reference)
    difference = logprob_difference(batch, start_logprobs, config.objective)
    check(difference)
    if config.distillation.mode == "forward":
        updates = distill(learner, batch, tokenizer, config, step=step)
    else:
        groups = batch["group"].to_numpy()
        updates = update(learner, reference, groups, start_logprobs, config, step=step)
    return Learned(difference=difference, updates=updates, seconds=time.perf_counter() - started)
