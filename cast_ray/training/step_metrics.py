"""The row of ``metrics.parquet`` that a step leaves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from cast_ray.algorithms.credit import CreditSummary
from cast_ray.envs.text_env import DEADLOCK, LOST, SOLVED
from cast_ray.games.game import Effect
from cast_ray.learner.batching import flat_column
from cast_ray.rollout.trajectory import NOT_THE_POLICY
from cast_ray.runs.metrics import METRIC_TYPES, METRICS, StepMetrics
from cast_ray.runs.recoveries import KINDS, Kind
from cast_ray.training.snapshot import Look, engine_figures, largest_mib
from cast_ray.training.update import Learned


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedStep:
    """What a step trains on."""

    step: int
    batch: pa.Table
    """``BATCH_SCHEMA``."""
    dropped_groups: int
    credit: CreditSummary

    @property
    def staleness(self) -> np.ndarray:
        """Return ``[tokens of the policy]`` how many steps older than needed their weights were."""
        versions = flat_column(self.batch, "weight_versions")
        return self.step - versions[versions != NOT_THE_POLICY]

    @property
    def staleness_max(self) -> int:
        """Return the staleness of the oldest token."""
        return int(self.staleness.max(initial=0))


def step_metrics(
    played: PlayedStep,
    learned: Learned,
    figures: dict[str, Any],
    *,
    layer_error: float,
    seconds_total: float,
    seconds_sync: float,
) -> StepMetrics:
    """Return the row of ``metrics.parquet`` that describes a step.

    Args:
        played: what it trained on.
        learned: the result of its updates.
        figures: ``played_figures``, or ``UNSEEN_FIGURES`` for a step that was learned again.
        layer_error: of the sync before the step.
        seconds_total: wall time of the step.
        seconds_sync: of that, the sync after it.
    """
    batch, updates, difference = played.batch, learned.updates, learned.difference
    columns = ["reward", "end_reason", "effects", "seconds_environment", "seconds_generation"]
    frame = pl.DataFrame(batch.select(columns))
    effects = frame["effects"].explode().to_numpy()
    end_reasons = frame["end_reason"].to_numpy()
    durations = (frame["seconds_environment"] + frame["seconds_generation"]).to_numpy()
    staleness = played.staleness
    tokens = len(staleness)
    no_action = [Effect.INVALID.value, Effect.ILLEGAL.value, Effect.TRUNCATED.value]
    return StepMetrics(
        step=played.step,
        success=float((end_reasons == SOLVED).mean()),
        reward_mean=float(frame["reward"].to_numpy().mean()),
        num_trajectories=len(frame),
        dropped_groups=played.dropped_groups,
        num_turns=len(effects),
        turns_mean=len(effects) / len(frame),
        tokens=tokens,
        tokens_per_s=tokens / figures["seconds_generation"]
        if figures["seconds_generation"]
        else math.nan,
        invalid_fraction=float(np.isin(effects, no_action).mean()),
        ineffective_fraction=float((effects == Effect.INEFFECTIVE.value).mean()),
        lost_fraction=float(np.isin(end_reasons, [DEADLOCK, LOST]).mean()),
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
        staleness_max=played.staleness_max,
        staleness_mean=float(staleness.mean()) if tokens else 0.0,
        staleness_tokens=tuple(np.bincount(staleness).tolist()),
        weight_version=played.step - (int(staleness.min()) if tokens else 0),
        seconds_total=seconds_total,
        seconds_long_tail=float(durations.max() - np.quantile(durations, 0.9)),
        waiting_fraction=float(1 - durations.mean() / max(durations.max(), 1e-9)),
        seconds_environment=float(frame["seconds_environment"].sum()),
        seconds_learner=learned.seconds,
        seconds_sync=seconds_sync,
        seconds_checkpoint=0.0,
        seconds_validation=0.0,
        validation_success=None,
        **asdict(played.credit),
        **figures,
    )


def played_figures(looks: Sequence[Look], recoveries: Counter[Kind]) -> dict[str, Any]:
    """Return the live columns of ``StepMetrics``, which only the run's parts know.

    Args:
        looks: from the start of the step to its end, at least two.
        recoveries: since the last row, by kind.
    """
    before, after = looks[0], looks[-1]
    # Empty until an oracle has answered for the first time.
    pool = Counter(after.pool)
    pool.subtract(before.pool)
    look_ups = pool["num_hits"] + pool["num_misses"]
    return {
        **asdict(engine_figures(looks)),
        "oracle_hit_fraction": pool["num_hits"] / look_ups if look_ups else math.nan,
        "oracle_misses": pool["num_misses"],
        "oracle_bytes": after.pool.get("memory_bytes", math.nan),
        "kernel_compilations": pool["num_compilations"],
        "seconds_solver": pool["seconds_building"] + pool["seconds_scoring"],
        "seconds_solver_build": pool["seconds_building"],
        "engine_retries": int(pool["num_retries"]),
        "engine_overflows": int(pool["num_overflows"]),
        "lost_groups": after.lost_groups - before.lost_groups,
        **{f"recovered_{kind}": recoveries[kind] for kind in KINDS},
        **{f"memory_{role}_mib": largest_mib(after, role) for role in _ROLES},
        "is_replayed": False,
    }


_ROLES = ("driver", "environment", "oracle", "engine")
_UNKNOWN: dict[Any, Any] = {int: 0, float: math.nan, tuple[float, ...]: ()}
UNSEEN_FIGURES: dict[str, Any] = {
    name: _UNKNOWN[METRIC_TYPES[name]] for name, metric in METRICS.items() if metric.is_live
} | {"is_replayed": True}
"""``played_figures`` of a step that was learned again: the driver that saw its play is gone."""
