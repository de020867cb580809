"""One step of the loop: play, credit, update, sync; and the row of figures that it leaves."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from cast_ray.batching import flat_column
from cast_ray.config import TrainConfig
from cast_ray.credit import CreditSummary, add_advantages
from cast_ray.env import DEADLOCK, LOST
from cast_ray.games.base import Effect
from cast_ray.jobs import evaluate
from cast_ray.jobs.boards import PuzzleSampler
from cast_ray.jobs.dynamic_sampling import play_informative
from cast_ray.learner_settings import UpdateStats
from cast_ray.metrics import StepMetrics
from cast_ray.puzzles import Puzzle
from cast_ray.seeds import derive_seed
from cast_ray.sync_check import LogprobDifference
from cast_ray.trajectory import NOT_THE_POLICY
from solver_actors.pool import RolloutPool


@dataclass(slots=True)
class Stopwatch:
    """Seconds by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, name: str, since: float) -> None:
        """Add the time since ``since`` to a name."""
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - since


def play_step(
    pool: RolloutPool,
    sampler: PuzzleSampler,
    config: TrainConfig,
    *,
    step: int,
    on_group: Callable[[int, int], None],
) -> tuple[pa.Table, int]:
    """Return a step's scored trajectories, and how many groups dynamic sampling dropped."""
    rollout = config.rollout

    def play(puzzles: list[Puzzle], first_group: int) -> pa.Table:
        groups = evaluate.episode_groups(
            puzzles,
            attempts=rollout.group_size,
            step=step,
            seed=config.seed,
            purpose="rollout",
            first_group=first_group,
        )
        sampling = evaluate.training_sampling(config)
        return evaluate.play(pool, groups, sampling, timeout_s=rollout.timeout_s, on_group=on_group)

    return play_informative(
        functools.partial(sampler.draw, step),
        play,
        num_groups=rollout.puzzles_per_step,
        further_draws=rollout.dynamic_sampling,
    )


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
        step_weight=advantage.step_weight,
        step_discount=advantage.step_discount,
        overlong_buffer=advantage.overlong_buffer,
        response_tokens=config.rollout.response_tokens,
        distillation=config.distillation.mode,
        permute=shuffle if advantage.permute_credit else None,
    )


def step_metrics(
    batch: pa.Table,
    *,
    step: int,
    dropped_groups: int,
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
    columns = ["reward", "end_reason", "effects", "seconds_environment"]
    frame = pl.DataFrame(batch.select(columns))
    effects = frame["effects"].explode().to_numpy()
    versions = flat_column(batch, "weight_versions")
    versions = versions[versions != NOT_THE_POLICY]
    end_reasons = frame["end_reason"].to_numpy()
    oracle = {name: oracle_after[name] - oracle_before[name] for name in oracle_after}
    look_ups = oracle["num_hits"] + oracle["num_misses"]
    tokens = int(flat_column(batch, "loss_mask").sum(dtype=np.int64))
    no_action = [Effect.INVALID.value, Effect.ILLEGAL.value, Effect.TRUNCATED.value]
    return StepMetrics(
        step=step,
        success=float(frame["reward"].to_numpy().mean()),
        num_trajectories=len(frame),
        dropped_groups=dropped_groups,
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
