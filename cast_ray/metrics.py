"""The figures of a run: one row a step, on disk and in TensorBoard, and success with intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.summary import scalar

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
}
"""Columns that stored runs may lack, with what they would hold there; NaN = it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One row of ``metrics.parquet``. Times in seconds, shares between 0 and 1."""

    step: int
    success: float
    """Share of the step's trajectories that solved their puzzle."""
    num_trajectories: int
    dropped_groups: int
    """Groups played and left out of the step by dynamic sampling; no other figure but the times
    and the oracle's counts them."""
    num_turns: int
    turns_mean: float
    """Mean turns of a trajectory."""
    tokens: int
    """Tokens that the policy wrote."""
    tokens_per_s: float
    """Those tokens per second of generation."""
    invalid_fraction: float
    """Share of turns without an action, or with a forbidden one."""
    ineffective_fraction: float
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
    grad_norm: float
    """Before clipping, mean over the step's updates."""
    clip_fraction: float
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
    rollout_kl: float
    """Mean estimate of KL(rollout || learner) at the step's tokens, in nats."""
    rollout_clip_fraction: float
    """Share of tokens whose ratio learner / rollout is above the cap, or out of its bounds where
    such tokens are left out."""
    layer_error: float
    """Largest relative error of a layer in use, from the sync before this step's rollouts."""
    staleness_max: int
    """Most steps between the version that wrote a token and the one it trained."""
    weight_version: int
    oracle_hit_fraction: float
    """Share of look-ups whose solver was in the oracles' caches."""
    oracle_misses: int
    """Look-ups that had to build one."""
    oracle_bytes: int
    """Size of the solvers in the caches at the end of the step."""
    kernel_compilations: int
    """What numba compiled in the pool's actors during the step: nothing, if the set-up is whole."""
    seconds_total: float
    """Wall time of the step, its validation left out."""
    seconds_generation: float
    """Time with a request running, by the engine's clock."""
    seconds_environment: float
    """Time in rules, text and tokenizer, summed over episodes (runs beside generation)."""
    seconds_solver: float
    """Time in solvers, builds included (runs beside generation)."""
    seconds_solver_build: float
    """Time that the oracles took to build solvers."""
    seconds_learner: float
    seconds_sync: float
    seconds_validation: float
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


class MetricsLog:
    """The rows so far, kept in ``metrics.parquet`` and as TensorBoard events."""

    def __init__(self, path: Path, events_dir: Path, *, rows: Sequence[StepMetrics] = ()) -> None:
        self._path = path
        self.rows = list(rows)
        self._events_dir = events_dir
        # Not SummaryWriter: a full disk kills its thread, and later calls wait for it for ever.
        with refusals_named(events_dir):
            events_dir.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(events_dir / "events"))

    def append(self, row: StepMetrics) -> None:
        """Add one step and bring the files up to date.

        Raises:
            EnvironmentSetupError: they cannot be written.
        """
        self.rows.append(row)
        write_metrics(self._path, self.rows)
        with refusals_named(self._events_dir):
            for name, value in asdict(row).items():
                if name != "step" and value is not None:
                    self._writer.write_event(_event(row.step, name, value))
            self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        with refusals_named(self._events_dir):
            self._writer.close()


def write_metrics(path: Path, rows: Sequence[StepMetrics]) -> None:
    """Write all rows as Parquet; a reader never meets half a file."""
    with written_aside(path) as aside:
        pl.DataFrame([asdict(row) for row in rows], schema=_SCHEMA).write_parquet(aside)


def read_metrics(path: Path) -> list[StepMetrics]:
    """Return the rows of a ``metrics.parquet``; none where the file does not exist yet."""
    if not path.is_file():
        return []
    frame = pl.read_parquet(path).rename(_OTHER_NAMES, strict=False)
    return [StepMetrics(**(_ADDED | row)) for row in frame.to_dicts()]


def _event(step: int, name: str, value: float) -> Event:
    section = "time" if name.startswith("seconds") else "train"
    return Event(wall_time=time.time(), step=step, summary=scalar(f"{section}/{name}", value))


_POLARS_TYPES: dict[str, Any] = {  # Any: Polars' own type objects
    "int": pl.Int64,
    "float": pl.Float64,
    "float | None": pl.Float64,
}
_SCHEMA = {item.name: _POLARS_TYPES[str(item.type)] for item in fields(StepMetrics)}
