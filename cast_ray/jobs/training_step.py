"""One step of the loop: play, credit, update, sync; and the row of figures that it leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import ray

from cast_ray.batching import flat_column, split_into_mini_batches
from cast_ray.config import TrainConfig
from cast_ray.credit import CreditSummary, add_advantages
from cast_ray.env import DEADLOCK, LOST
from cast_ray.errors import LearnerError
from cast_ray.games.base import Effect
from cast_ray.learner_actor import LearnerGroup
from cast_ray.learner_settings import UpdateStats
from cast_ray.metrics import StepMetrics
from cast_ray.objectives import Objective
from cast_ray.run_directory import write_table
from cast_ray.seeds import derive_seed
from cast_ray.sync_check import LogprobDifference


@dataclass(slots=True)
class Stopwatch:
    """Seconds by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, name: str, since: float) -> None:
        """Add the time since ``since`` to a name."""
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - since


def credit(scored: pa.Table, config: TrainConfig, *, step: int) -> tuple[pa.Table, CreditSummary]:
    """Return a step's trajectories with their advantages (SPEC, section 3)."""
    advantage = config.advantage
    shuffle = np.random.default_rng(derive_seed(config.seed, "permuted credit", step))
    return add_advantages(
        scored,
        alpha=advantage.alpha,
        transform=advantage.transform,
        normalisation=advantage.normalisation,
        rescue=advantage.rescue,
        std=advantage.std,
        delta=advantage.delta,
        epsilon=advantage.epsilon,
        permute=shuffle if advantage.permute_credit else None,
    )


def update(
    learner: LearnerGroup,
    batch: ray.ObjectRef,
    groups: np.ndarray,
    start_logprobs: np.ndarray,
    config: TrainConfig,
    *,
    step: int,
) -> list[UpdateStats]:
    """Take the step's optimizer updates, one for each mini-batch of whole groups."""
    objective = objective_of(config)
    start = ray.put(start_logprobs)
    reference = None
    if objective.kl_coefficient:
        # Once for the step: every rank reads the same copy.
        reference = ray.put(learner.reference_logprobs(batch))
    return [
        learner.update(batch, rows, objective, start, reference)
        for rows in split_into_mini_batches(
            groups,
            num_mini_batches=config.learner.mini_batches,
            seed=derive_seed(config.seed, "mini-batches", step),
        )
    ]


def objective_of(config: TrainConfig) -> Objective:
    """Return the objective that a configuration asks for."""
    objective = config.objective
    return Objective(
        ratio=objective.ratio,
        aggregation=objective.aggregation,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        dual_clip=objective.dual_clip,
        kl_coefficient=objective.kl_coefficient,
        entropy_coefficient=objective.entropy_coefficient,
        rollout_correction=objective.rollout_correction,
        rollout_correction_cap=objective.rollout_correction_cap,
    )


class SkippedUpdates:
    """Counts updates in a row that were not finite, over the steps of a run."""

    def __init__(self, *, most: int, in_a_row: int = 0) -> None:
        """Take ``learner.max_skipped_updates``; ``in_a_row`` is known when a run is resumed."""
        self._most = most
        self.in_a_row = in_a_row

    def judge(self, updates: Sequence[UpdateStats], batch: pa.Table, inspection: Path) -> None:
        """Count a step's updates; stop the run at too many.

        Args:
            updates: of the step.
            batch: what they were made of.
            inspection: where it is kept if the run stops.

        Raises:
            LearnerError: so many in a row were skipped.
        """
        for stats in updates:
            self.in_a_row = 0 if stats.is_applied else self.in_a_row + 1
            if self.in_a_row >= self._most:
                inspection.parent.mkdir(exist_ok=True)
                write_table(inspection, batch)
                raise LearnerError(
                    f"{self.in_a_row} updates in a row had a loss or gradient that is not finite "
                    f"(loss {stats.loss}) and were skipped; the weights are as before them and the "
                    f"last batch is in {inspection}: look at its advantages and logprobs"
                )


def step_metrics(
    batch: pa.Table,
    *,
    step: int,
    credit_summary: CreditSummary,
    updates: Sequence[UpdateStats],
    difference: LogprobDifference,
    layer_error: float,
    oracle_before: dict[str, float],
    oracle_after: dict[str, float],
    seconds: dict[str, float],
    validation_success: float | None,
) -> StepMetrics:
    """Return the row of ``metrics.parquet`` that describes a step."""
    columns = ["reward", "end_reason", "effects", "weight_versions", "seconds_environment"]
    frame = pl.DataFrame(batch.select(columns))
    effects = frame["effects"].explode().to_numpy()
    versions = frame["weight_versions"].explode().to_numpy()
    end_reasons = frame["end_reason"].to_numpy()
    oracle = {name: oracle_after[name] - oracle_before[name] for name in oracle_after}
    look_ups = oracle["num_hits"] + oracle["num_misses"]
    tokens = int(flat_column(batch, "loss_mask").sum(dtype=np.int64))
    no_action = [Effect.INVALID.value, Effect.ILLEGAL.value, Effect.TRUNCATED.value]
    return StepMetrics(
        step=step,
        success=float(frame["reward"].to_numpy().mean()),
        num_trajectories=len(frame),
        num_turns=len(effects),
        turns_mean=len(effects) / len(frame),
        tokens=tokens,
        tokens_per_s=tokens / max(seconds["generation"], 1e-9),
        invalid_fraction=float(np.isin(effects, no_action).mean()),
        ineffective_fraction=float((effects == Effect.INEFFECTIVE.value).mean()),
        lost_fraction=float(np.isin(end_reasons, [DEADLOCK, LOST]).mean()),
        progress_fraction=credit_summary.share_progress,
        harmful_fraction=credit_summary.share_harmful,
        shifted_advantage_mean=credit_summary.shifted_mean,
        unknown_costs=credit_summary.num_unknown,
        loss=float(np.mean([stats.loss for stats in updates])),
        grad_norm=float(np.mean([stats.grad_norm for stats in updates])),
        clip_fraction=float(np.mean([stats.clip_fraction for stats in updates])),
        entropy=float(np.mean([stats.entropy for stats in updates])),
        kl=float(np.mean([stats.kl for stats in updates])),
        skipped_updates=sum(not stats.is_applied for stats in updates),
        logprob_abs_diff=difference.mean,
        logprob_abs_diff_max=difference.largest,
        rollout_kl=difference.kl,
        rollout_clip_fraction=difference.share_beyond_cap,
        layer_error=layer_error,
        staleness_max=step - int(versions.min()),
        weight_version=int(versions.max()),
        oracle_hit_fraction=oracle["num_hits"] / look_ups if look_ups else 0.0,
        oracle_misses=int(oracle["num_misses"]),
        oracle_bytes=int(oracle_after["memory_bytes"]),
        kernel_compilations=int(oracle["num_compilations"]),
        seconds_total=seconds["total"],
        seconds_generation=seconds["generation"],
        seconds_environment=float(frame["seconds_environment"].sum()),
        seconds_solver=oracle["seconds_building"] + oracle["seconds_scoring"],
        seconds_solver_build=oracle["seconds_building"],
        seconds_learner=seconds["learner"],
        seconds_sync=seconds["sync"],
        seconds_validation=seconds["validation"],
        validation_success=validation_success,
    )
