"""The figures of a run: one row a step, on disk and in TensorBoard, and success with intervals.

How each validation board did after each validated step: what curves are resampled from.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from cast_ray.files import refusals_named, written_aside

_BOOTSTRAP_SAMPLES = 2000
_OTHER_NAMES = {"deadlock_fraction": "lost_fraction"}
"""Columns of stored Sokoban runs, where a deadlock is the only failure."""
_ADDED = {
    "dropped_groups": 0,
    "kl": 0.0,
    "skipped_updates": 0,
    "rollout_kl": math.nan,
    "rollout_clip_fraction": math.nan,
    "staleness_mean": 0.0,
    "staleness_tokens": (),
    "is_replayed": False,
    "engine_busy_fractions": (),
    "engine_queue_mean": math.nan,
    "engine_queue_max": math.nan,
    "seconds_queueing": math.nan,
    "prefix_hit_fraction": math.nan,
    "lost_groups": 0,
    "engine_retries": 0,
    "engine_overflows": 0,
    "recovered_environment": 0,
    "recovered_oracle": 0,
    "recovered_engine": 0,
    "recovered_learner": 0,
    "recovered_node": 0,
    "recovered_driver": 0,
    "memory_driver_mib": math.nan,
    "memory_environment_mib": math.nan,
    "memory_oracle_mib": math.nan,
    "memory_engine_mib": math.nan,
    "seconds_long_tail": math.nan,
    "waiting_fraction": math.nan,
    "seconds_checkpoint": 0.0,
}
"""Columns that stored runs may lack, with what they would hold there; NaN = it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One row of ``metrics.parquet``.

    Times in seconds, shares between 0 and 1, NaN = not measured.
    """

    step: int
    """Of the run, from 1."""
    success: float
    """Share of the step's trajectories that solved their puzzle."""
    num_trajectories: int
    """Trajectories that were learned from."""
    dropped_groups: int
    """Groups played and left out of the step by dynamic sampling; no other figure but the times
    and the oracle's counts them."""
    num_turns: int
    """Their turns."""
    turns_mean: float
    """Mean turns of a trajectory."""
    tokens: int
    """Tokens that the policy wrote."""
    tokens_per_s: float
    """Those tokens per second of generation."""
    invalid_fraction: float
    """Share of turns without an action, or with a forbidden one."""
    ineffective_fraction: float
    """Share of turns whose action was legal and changed nothing."""
    lost_fraction: float
    """Share of trajectories that the game's own failure ended: a proven deadlock, a mine hit."""
    progress_fraction: float
    """Share of turns that lowered the cost-to-go."""
    harmful_fraction: float
    """Share of turns that raised it or made it infinite."""
    shifted_advantage_mean: float
    """Mean shifted advantage of a turn, in the game's moves."""
    unknown_costs: int
    """Turns whose cost the solver did not know."""
    loss: float
    """Mean over the step's updates."""
    grad_norm: float
    """Before clipping, mean over the step's updates."""
    clip_fraction: float
    """Share of tokens in the loss whose gradient the clip took away."""
    entropy: float
    """Mean entropy of the policy at the tokens in the loss, in nats."""
    kl: float
    """Mean divergence from the reference model at the tokens in the loss, in nats; 0 where the
    objective has none."""
    skipped_updates: int
    """Updates of the step that were not finite and left the weights as they were."""
    logprob_abs_diff: float
    """Mean |rollout - learner| logprob of the step's tokens, before its first update."""
    logprob_abs_diff_max: float
    """The largest of one token."""
    rollout_kl: float
    """Mean estimate of KL(rollout || learner) at the step's tokens, in nats."""
    rollout_clip_fraction: float
    """Share of tokens whose ratio learner / rollout is above the cap, or out of its bounds where
    such tokens are left out."""
    layer_error: float
    """Largest relative error of a layer in use, from the sync before this step's rollouts."""
    staleness_max: int
    """Most steps between the version that wrote a token and the one it trained."""
    staleness_mean: float
    """Mean over the policy's tokens."""
    staleness_tokens: tuple[int, ...]
    """Histogram: the policy's tokens of staleness 0, 1, ..."""
    weight_version: int
    """The newest one that wrote a token of the step."""
    oracle_hit_fraction: float
    """Share of look-ups whose solver was in the oracles' caches."""
    oracle_misses: float
    """Look-ups that had to build one."""
    oracle_bytes: float
    """Size of the solvers in the caches at the end of the step."""
    kernel_compilations: float
    """What numba compiled in the pool's actors during the step: nothing, if the set-up is whole."""
    engine_busy_fractions: tuple[float, ...]
    """For each engine the share of the step's wall time with a request running; NaN while it was
    away. What is left to 1 it idled."""
    engine_queue_mean: float
    """Requests that wait in an engine for one of its slots, mean over engines and seconds."""
    engine_queue_max: float
    """The longest queue seen in one engine."""
    seconds_queueing: float
    """Mean wait of a request in an engine's queue."""
    prefix_hit_fraction: float
    """Share of prompt tokens that the engines had in their prefix caches."""
    lost_groups: int
    """Groups that were lost with an actor and played again."""
    engine_retries: int
    """Requests that were asked again because their engine failed."""
    engine_overflows: int
    """Episodes that moved to another engine because theirs was full."""
    recovered_environment: int
    """Env runners that were lost and came back during the step."""
    recovered_oracle: int
    """Oracle actors, likewise."""
    recovered_engine: int
    """Engines, likewise."""
    recovered_learner: int
    """Times that lost ranks were started again."""
    recovered_node: int
    """Nodes that were lost."""
    recovered_driver: int
    """Times that the driver was started again."""
    memory_driver_mib: float
    """Resident memory of the driver's process at the end of the step."""
    memory_environment_mib: float
    """Of the largest env runner."""
    memory_oracle_mib: float
    """Of the largest oracle actor."""
    memory_engine_mib: float
    """Of the largest engine, vLLM's processes included."""
    is_replayed: bool
    """Whether the row is of updates that were taken again from the trajectory log, because the
    driver was lost before it wrote the first row. What only the play could tell is NaN."""
    seconds_total: float
    """Wall time of the step, its validation left out."""
    seconds_generation: float
    """Time with a request running, by the engine's clock, the busiest engine's."""
    seconds_long_tail: float
    """What the step waited for its slowest episodes: from the end of nine tenths to the last."""
    waiting_fraction: float
    """Share of episode-seconds that ended episodes waited for the step's slowest one."""
    seconds_environment: float
    """Time in rules, text and tokenizer, summed over episodes (runs beside generation)."""
    seconds_solver: float
    """Time in solvers, builds included (runs beside generation)."""
    seconds_solver_build: float
    """Time that the oracles took to build solvers."""
    seconds_learner: float
    """Log-probabilities under the weights of the step's start, then the updates."""
    seconds_sync: float
    """From the updates' end until every engine has proved that it has the new weights."""
    seconds_checkpoint: float
    """0 where the step ended without one."""
    seconds_validation: float
    """From the first episode asked for to the last one back; beside the next steps' rollouts where
    ``max_staleness`` is above 0."""
    validation_success: float | None
    """Null where the step was not validated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """A success rate with its 95% bootstrap interval over puzzles."""

    success: float
    low: float
    high: float
    n: int
    """Attempts."""


def success_rate(puzzle_ids: Sequence[str], rewards: Sequence[float], *, seed: int) -> Success:
    """Return the mean reward and its interval; attempts at one puzzle are resampled together."""
    frame = pl.DataFrame({"puzzle": list(puzzle_ids), "reward": list(rewards)})
    per_puzzle = frame.group_by("puzzle", maintain_order=True).agg(
        pl.col("reward").sum(), pl.len().alias("attempts")
    )
    solved = per_puzzle["reward"].to_numpy().astype(np.float64)
    attempts = per_puzzle["attempts"].to_numpy().astype(np.float64)
    draws = np.random.default_rng(seed).integers(
        0, len(solved), size=(_BOOTSTRAP_SAMPLES, len(solved))
    )
    means = solved[draws].sum(axis=1) / attempts[draws].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Success(
        success=float(solved.sum() / attempts.sum()),
        low=float(low),
        high=float(high),
        n=int(attempts.sum()),
    )


def write_metrics(path: Path, rows: Sequence[StepMetrics]) -> None:
    """Write all rows as Parquet; a reader never meets half a file."""
    with written_aside(path, durable=True) as aside:
        pl.DataFrame([asdict(row) for row in rows], schema=_SCHEMA).write_parquet(aside)


def read_metrics(path: Path) -> list[StepMetrics]:
    """Return the rows of a ``metrics.parquet``; none where the file does not exist yet."""
    rows = read_metrics_frame(path).to_dicts()
    return [StepMetrics(**(_ADDED | _with_tuples(row))) for row in rows]


def read_metrics_frame(path: Path) -> pl.DataFrame:
    """Return the columns that a ``metrics.parquet`` has, by the names that they have now.

    Empty where the file does not exist yet.
    """
    if not path.is_file():
        return pl.DataFrame(schema=_SCHEMA)
    # Read once: Polars opens a path again and again, and the next step replaces the file.
    return pl.read_parquet(io.BytesIO(path.read_bytes())).rename(_OTHER_NAMES, strict=False)


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}


_POLARS_TYPES: dict[str, Any] = {  # Any: Polars' own type objects
    "int": pl.Int64,
    "float": pl.Float64,
    "float | None": pl.Float64,
    "bool": pl.Boolean,
    "tuple[int, ...]": pl.List(pl.Int64),
    "tuple[float, ...]": pl.List(pl.Float64),
}
_SCHEMA = {item.name: _POLARS_TYPES[str(item.type)] for item in fields(StepMetrics)}


SCHEMA = pl.Schema(
    {"step": pl.Int32, "puzzle_id": pl.String, "attempts": pl.Int32, "solved": pl.Int32}
)
"""Step 0 is the start model's."""


def read_validation(path: Path) -> pl.DataFrame:
    """Return the rows of ``validation.parquet``; none where the file does not exist yet."""
    return pl.read_parquet(path) if path.is_file() else SCHEMA.to_frame()


def keep_validation(path: Path, step: int, table: pa.Table) -> None:
    """Add a validation, in the place of an earlier one of the same step.

    Args:
        path: of ``validation.parquet``.
        step: whose weights played.
        table: ``SCORED_SCHEMA``.

    Raises:
        EnvironmentSetupError: it cannot be written; the older one is still there.
    """
    attempts = pl.DataFrame(
        {"puzzle_id": table["puzzle_id"].to_pylist(), "reward": table["reward"].to_pylist()},
        schema={"puzzle_id": pl.String, "reward": pl.Float64},
    )
    found = attempts.group_by("puzzle_id").agg(
        step=pl.lit(step), attempts=pl.len(), solved=pl.col("reward").sum()
    )
    others = read_validation(path).filter(pl.col("step") != step)
    rows = pl.concat([others, found.select(SCHEMA.names()).cast(SCHEMA)])
    with refusals_named(path), written_aside(path) as aside:
        rows.sort("step", "puzzle_id").write_parquet(aside)
