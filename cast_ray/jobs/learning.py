"""What the learner does with one step's trajectories; the same whether played now or logged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import ray

from cast_ray.chat import ChatTokenizer
from cast_ray.config import TrainConfig
from cast_ray.jobs.updates import distill, objective_of, update
from cast_ray.learner_group import LearnerGroup
from cast_ray.learner_settings import UpdateStats
from cast_ray.sync_check import LogprobDifference, logprob_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What came of a step's updates."""

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
    judge: Callable[[LogprobDifference], None] = lambda difference: None,
) -> Learned:
    """Take a step's updates. They follow from the weights and the arguments alone.

    Args:
        learner: holds the weights of the step's start.
        batch: ``BATCH_SCHEMA``.
        tokenizer: writes the teacher's actions in forward distillation.
        config: of the run.
        step: seeds the split into mini-batches.
        judge: is told how engine and learner differ before the first update, and may stop it.

    Raises:
        LearnerLost: a rank died or hangs.
        LearnerError: the learner failed.
    """
    started = time.perf_counter()
    reference = ray.put(batch)
    start_logprobs = learner.logprobs(reference)
    difference = logprob_difference(batch, start_logprobs, objective_of(config))
    judge(difference)
    if config.distillation.mode == "forward":
        updates = distill(learner, batch, tokenizer, config, step=step)
    else:
        groups = batch["group"].to_numpy()
        updates = update(learner, reference, groups, start_logprobs, config, step=step)
    return Learned(difference=difference, updates=updates, seconds=time.perf_counter() - started)
