"""What a run measures: one row of ``StepMetrics`` per step, and every validation by board.

A metric is declared here and nowhere else: the field of ``StepMetrics`` is its name and type, the
text under it says what it is, and its ``Metric`` holds the rest. The Parquet file, TensorBoard,
Prometheus, the report and docs/metrics.md follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import polars as pl
import pyarrow as pa

from cast_ray.config.reference import field_descriptions
from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import RunDirectoryError
from cast_ray.parquet import read_frame, write_frame


@dataclass(frozen=True, slots=True)
class Metric:
    """The properties of a column beyond its name, type and text."""

    unit: str
    """Empty = it has none."""
    aggregation: Literal["sum", "mean", "max", "last"]
    """How the figures of a step's parts become the step's."""
    label: str = ""
    """Title of its chart; empty = the column's name."""
    tag: str = ""
    """Prometheus label for the place in a list."""
    is_live: bool = False
    """Whether it is unknown for a step that is learned again from the trajectory log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One row of ``metrics.parquet``; shares are between 0 and 1, NaN = not measured."""

    step: Annotated[int, Metric("steps", "last")]
    """Number of the step, from 1."""
    success: Annotated[float, Metric("share", "mean", label="Success")]
    """Share of the step's trajectories that solved their puzzle."""
    reward_mean: Annotated[float, Metric("", "mean", label="Mean reward")]
    """Reward of an episode, of the game or environment itself; of a game the same as success."""
    num_trajectories: Annotated[int, Metric("count", "sum")]
    """Trajectories that the step learned from."""
    dropped_groups: Annotated[int, Metric("count", "sum")]
    """Groups that were played and that dynamic sampling left out of the step. Of the other
    columns only the times and the oracle's count them."""
    num_turns: Annotated[int, Metric("turns", "sum")]
    """Turns of the step's trajectories."""
    turns_mean: Annotated[float, Metric("turns", "mean", label="Turns of an episode")]
    """Turns of a trajectory. A solved puzzle ends early."""
    tokens: Annotated[int, Metric("tokens", "sum")]
    """Tokens that the policy wrote."""
    tokens_per_s: Annotated[float, Metric("tokens/s", "mean", label="Tokens per second")]
    """Tokens that the policy wrote, per second of generation."""
    invalid_fraction: Annotated[float, Metric("share", "mean", label="Turns without an action")]
    """Share of turns from which no action could be read, or a forbidden one."""
    ineffective_fraction: Annotated[float, Metric("share", "mean", label="Turns without effect")]
    """Share of turns whose action was legal and changed nothing: something was in the way."""
    lost_fraction: Annotated[float, Metric("share", "mean", label="Episodes lost for good")]
    """Share of trajectories that ended in the game's own failure: a proven deadlock, a mine."""
    progress_fraction: Annotated[float, Metric("share", "mean")]
    """Share of turns that lowered the cost-to-go."""
    harmful_fraction: Annotated[float, Metric("share", "mean")]
    """Share of turns that raised the cost-to-go or made it infinite."""
    shifted_advantage_mean: Annotated[
        float, Metric("moves", "mean", label="Mean shifted advantage")
    ]
    """Shifted advantage of a turn, in the game's moves."""
    unknown_costs: Annotated[int, Metric("turns", "sum")]
    """Turns whose cost the solver did not know."""
    loss: Annotated[float, Metric("", "mean", label="Loss")]
    """Mean over the step's updates."""
    grad_norm: Annotated[float, Metric("", "mean", label="Gradient norm")]
    """Norm of the gradient before clipping, mean over the step's updates."""
    clip_fraction: Annotated[float, Metric("share", "mean", label="Clipped tokens")]
    """Share of tokens in the loss whose gradient the clip removed."""
    entropy: Annotated[float, Metric("nats", "mean", label="Entropy")]
    """Entropy of the policy at the tokens in the loss."""
    kl: Annotated[float, Metric("nats", "mean", label="Divergence from the reference")]
    """KL divergence from the reference model at the tokens in the loss, mean over the step's
    updates; 0 if the objective has no reference."""
    skipped_updates: Annotated[int, Metric("count", "sum", label="Skipped updates")]
    """Updates that were not applied because the loss or the gradient was not finite."""
    logprob_abs_diff: Annotated[float, Metric("nats", "mean", label="Logprob difference, mean")]
    """|engine - learner| logprob of the step's tokens, before its first update. In
    bfloat16, up to 0.02 is healthy."""
    logprob_abs_diff_max: Annotated[
        float, Metric("nats", "max", label="Logprob difference, largest")
    ]
    """|engine - learner| logprob of the worst token of the step."""
    rollout_kl: Annotated[float, Metric("nats", "mean", label="Divergence of engine and learner")]
    """Estimate of KL(engine || learner) at the step's tokens, before its first update."""
    rollout_clip_fraction: Annotated[float, Metric("share", "mean", label="Corrected tokens")]
    """Share of tokens whose ratio learner / engine is above the cap, or outside the bounds if
    such tokens are left out."""
    layer_error: Annotated[float, Metric("", "max")]
    """Largest relative error of a layer, from the weight sync before this step's rollouts."""
    staleness_max: Annotated[int, Metric("steps", "max")]
    """Steps between the weights that wrote a token and those that it trained, at most."""
    staleness_mean: Annotated[float, Metric("steps", "mean")]
    """Steps between the weights that wrote a token and those that it trained."""
    staleness_tokens: Annotated[tuple[int, ...], Metric("tokens", "sum", tag="staleness")]
    """Histogram of the policy's tokens: how many had staleness 0, 1, ..."""
    weight_version: Annotated[int, Metric("", "max")]
    """Newest weights that wrote a token of the step."""
    oracle_hit_fraction: Annotated[float, Metric("share", "mean", is_live=True)]
    """Share of look-ups whose solver was in an oracle's cache."""
    oracle_misses: Annotated[float, Metric("count", "sum", is_live=True)]
    """Look-ups that had to build a solver."""
    oracle_bytes: Annotated[float, Metric("bytes", "last", is_live=True)]
    """Size of the solvers in the oracles' caches at the end of the step."""
    kernel_compilations: Annotated[float, Metric("count", "sum", is_live=True)]
    """Functions that numba compiled in the pool's actors during the step: 0 if the set-up is
    complete."""
    engine_busy_fractions: Annotated[
        tuple[float, ...], Metric("share", "mean", tag="engine", is_live=True)
    ]
    """Share of the step's wall time with a request running, per engine; the rest it idled. NaN
    while an engine was away."""
    engine_queue_mean: Annotated[float, Metric("count", "mean", is_live=True)]
    """Requests that wait in an engine for a slot, over engines and seconds."""
    engine_queue_max: Annotated[float, Metric("count", "max", is_live=True)]
    """Longest queue seen in one engine."""
    seconds_queueing: Annotated[
        float, Metric("seconds", "mean", label="Wait in the queue", is_live=True)
    ]
    """Time of a request from its arrival at the engine to its first computation."""
    prefix_hit_fraction: Annotated[float, Metric("share", "mean", is_live=True)]
    """Share of prompt tokens that the engines found in their prefix caches."""
    lost_groups: Annotated[int, Metric("count", "sum", is_live=True)]
    """Groups that were lost with an actor and played again."""
    engine_retries: Annotated[int, Metric("count", "sum", is_live=True)]
    """Requests that were sent again because their engine failed."""
    engine_overflows: Annotated[int, Metric("count", "sum", is_live=True)]
    """Episodes that moved to another engine because theirs was full."""
    recovered_environment: Annotated[int, Metric("count", "sum", is_live=True)]
    """Env runners that were lost and came back."""
    recovered_oracle: Annotated[int, Metric("count", "sum", is_live=True)]
    """Oracle actors that were lost and came back."""
    recovered_engine: Annotated[int, Metric("count", "sum", is_live=True)]
    """Engines that were lost and came back."""
    recovered_learner: Annotated[int, Metric("count", "sum", is_live=True)]
    """Restarts of learner ranks after a loss."""
    recovered_node: Annotated[int, Metric("count", "sum", is_live=True)]
    """Nodes that were lost and whose parts came back."""
    recovered_driver: Annotated[int, Metric("count", "sum", is_live=True)]
    """Restarts of the driver."""
    memory_driver_mib: Annotated[float, Metric("MiB", "last", is_live=True)]
    """Resident memory of the driver at the end of the step."""
    memory_environment_mib: Annotated[float, Metric("MiB", "max", is_live=True)]
    """Resident memory of the largest env runner at the end of the step."""
    memory_oracle_mib: Annotated[float, Metric("MiB", "max", is_live=True)]
    """Resident memory of the largest oracle actor at the end of the step."""
    memory_engine_mib: Annotated[float, Metric("MiB", "max", is_live=True)]
    """Resident memory of the largest engine at the end of the step, vLLM's processes
    included."""
    is_replayed: Annotated[bool, Metric("", "last")]
    """Whether the step was only learned again from the trajectory log, because the driver was
    lost before it wrote the step's row. What only the play can tell is NaN."""
    seconds_total: Annotated[float, Metric("seconds", "sum")]
    """Wall time of the step, without its checkpoint and validation."""
    seconds_generation: Annotated[float, Metric("seconds", "max", is_live=True)]
    """Time with a request running, by the engine's clock; the busiest engine's."""
    seconds_long_tail: Annotated[float, Metric("seconds", "last", label="Long tail")]
    """Time from the end of nine tenths of the episodes to the end of the last."""
    waiting_fraction: Annotated[
        float, Metric("share", "mean", label="Waiting for the slowest episode")
    ]
    """Share of episode-time after an episode's own end."""
    seconds_environment: Annotated[float, Metric("seconds", "sum")]
    """Time in rules, text and tokenizer, summed over episodes; overlaps with generation."""
    seconds_solver: Annotated[float, Metric("seconds", "sum", is_live=True)]
    """Time in solvers, builds included; overlaps with generation."""
    seconds_solver_build: Annotated[float, Metric("seconds", "sum", is_live=True)]
    """Time in which the oracles built solvers."""
    seconds_learner: Annotated[float, Metric("seconds", "sum")]
    """Time in the learner: log-probabilities under the step's first weights, then the
    updates."""
    seconds_sync: Annotated[float, Metric("seconds", "sum")]
    """Time from the end of the updates until every engine has proved that it holds the new
    weights."""
    seconds_checkpoint: Annotated[float, Metric("seconds", "sum")]
    """Time of the checkpoint after the step; 0 if there was none."""
    seconds_validation: Annotated[float, Metric("seconds", "sum")]
    """Time from the first validation episode asked for to the last one back; overlaps with the
    next steps' rollouts if ``max_staleness`` is above 0."""
    validation_success: Annotated[float | None, Metric("share", "mean")]
    """Share of validation episodes that solved their puzzle after the step; null if it was not
    validated. If ``max_staleness`` is above 0, later weights may write the last tokens."""


_HINTS = get_type_hints(StepMetrics, include_extras=True)
METRICS: dict[str, Metric] = {name: hint.__metadata__[0] for name, hint in _HINTS.items()}
"""Of every column, in order."""
METRIC_TYPES: dict[str, Any] = {name: hint.__origin__ for name, hint in _HINTS.items()}
"""Any: ``int``, ``tuple[float, ...]``, ..."""
_POLARS_TYPES: dict[Any, Any] = {  # Any: Polars' own type objects
    int: pl.Int64,
    float: pl.Float64,
    float | None: pl.Float64,
    bool: pl.Boolean,
    tuple[int, ...]: pl.List(pl.Int64),
    tuple[float, ...]: pl.List(pl.Float64),
}
_SCHEMA = pl.Schema({name: _POLARS_TYPES[kind] for name, kind in METRIC_TYPES.items()})


@cache
def metric_texts() -> dict[str, str]:
    """Return what each column is, in one or two sentences."""
    return {name: text.replace("``", "") for name, text in field_descriptions(StepMetrics).items()}


def metric_facts() -> dict[str, dict[str, str]]:
    """Return ``label``, ``unit`` and ``text`` of each column, for pages."""
    texts = metric_texts()
    return {
        name: {
            "label": metric.label or name.replace("_", " ").capitalize(),
            "unit": metric.unit,
            "text": texts[name],
        }
        for name, metric in METRICS.items()
    }


def shown_name(column: str) -> str:
    """Return the name of a column in TensorBoard and other trackers."""
    return f"time/{column}" if METRICS[column].unit == "seconds" else f"train/{column}"


def write_metrics(path: Path, rows: Sequence[StepMetrics]) -> None:
    """Write all rows as Parquet; a reader never sees half a file."""
    write_frame(path, pl.DataFrame([asdict(row) for row in rows], schema=_SCHEMA))


def read_metrics(path: Path) -> list[StepMetrics]:
    """Return the rows of a ``metrics.parquet``; none if the file does not exist yet.

    Raises:
        RunDirectoryError: another version wrote it: its columns are not those of ``StepMetrics``;
            or it is damaged.
    """
    frame = read_metrics_frame(path)
    if frame.schema != _SCHEMA:
        differing = sorted(name for name, _ in frame.schema.items() ^ _SCHEMA.items())
        raise RunDirectoryError(
            f"{path} was written by another version of cast_ray (it differs in "
            f"{', '.join(dict.fromkeys(differing))}): read it with that version"
        )
    return [StepMetrics(**_with_tuples(row)) for row in frame.to_dicts()]


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:  # Any: as Polars returns it
    return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}


def read_metrics_frame(path: Path) -> pl.DataFrame:
    """Return a ``metrics.parquet`` as it is; without rows if the file does not exist yet.

    Raises:
        RunDirectoryError: it is damaged; for example, it lacks a value.
    """
    frame = read_frame(path) if path.is_file() else pl.DataFrame(schema=_SCHEMA)
    needed = [name for name, kind in METRIC_TYPES.items() if kind != float | None]
    if null := [name for name in needed if name in frame and frame[name].null_count()]:
        raise RunDirectoryError(f"{path} has no value of {', '.join(null)} in a row: restore it")
    return frame


VALIDATION_SCHEMA = pl.Schema(
    {"step": pl.Int32, "puzzle_id": pl.String, "attempts": pl.Int32, "solved": pl.Int32}
)
"""Step 0 is the start model's."""


def read_validation(path: Path) -> pl.DataFrame:
    """Return the rows of ``validation.parquet``; none where the file does not exist yet."""
    return read_frame(path) if path.is_file() else VALIDATION_SCHEMA.to_frame()


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
        {name: table[name].to_pylist() for name in ("puzzle_id", "end_reason")},
        schema={"puzzle_id": pl.String, "end_reason": pl.String},
    )
    found = attempts.group_by("puzzle_id").agg(
        step=pl.lit(step), attempts=pl.len(), solved=(pl.col("end_reason") == SOLVED).sum()
    )
    others = read_validation(path).filter(pl.col("step") != step)
    rows = pl.concat([others, found.select(VALIDATION_SCHEMA.names()).cast(VALIDATION_SCHEMA)])
    write_frame(path, rows.sort("step", "puzzle_id"))
