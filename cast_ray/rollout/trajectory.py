"""Trajectories as data: an Arrow schema that gains columns in three stages, one row per trajectory.

    ROLLOUT_SCHEMA   what was played: tokens, turns, states, reward
    SCORED_SCHEMA    + the solver's cost of every visited state, or a value network's estimate of
                     it, and the teacher's judgement of every turn
    BATCH_SCHEMA     + outcome, turn and token advantages

Letters: ``T`` turns, ``L`` tokens of the conversation. Nothing once known is reconstructed later:
turn spans, masks, weight versions and seeds are columns. (step, group, episode, attempt) is unique.
Lists are never null; an unknown cost is a null with status ``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import numpy as np
import pyarrow as pa

from cast_ray.errors import TrajectoryError
from cast_ray.games.costs import EXACT, INFINITE, UNKNOWN, cost_as_float

NOT_THE_POLICY = -1
"""The weight version of a token that no weights wrote."""

_Int32: TypeAlias = Annotated[int, pa.int32()]
_Int64: TypeAlias = Annotated[int, pa.int64()]
_Float32: TypeAlias = Annotated[float, pa.float32()]
_Float64: TypeAlias = Annotated[float, pa.float64()]
_Text: TypeAlias = Annotated[str, pa.string()]
_Int32s: TypeAlias = Annotated[tuple[int, ...], pa.list_(pa.int32())]
_Int64s: TypeAlias = Annotated[tuple[int, ...], pa.list_(pa.int64())]
_UInt8s: TypeAlias = Annotated[tuple[int, ...], pa.list_(pa.uint8())]
_Float32s: TypeAlias = Annotated[tuple[float, ...], pa.list_(pa.float32())]
_Texts: TypeAlias = Annotated[tuple[str, ...], pa.list_(pa.string())]
_NullableInt32s: TypeAlias = Annotated[tuple[int | None, ...], pa.list_(pa.int32())]
_NullableFloat64s: TypeAlias = Annotated[tuple[float | None, ...], pa.list_(pa.float64())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The record of one episode; a field is a column, and its annotation the column's type.

    ``token_ids``, ``loss_mask`` (1 = written by the policy), ``rollout_logprobs`` (0 elsewhere),
    ``weight_versions`` (of the weights that wrote each token, -1 elsewhere): ``[L]``.
    ``turn_starts``/``turn_ends``: ``[T]`` half-open spans of the policy's tokens, its end-of-turn
    token included. ``actions``: ``[T]`` canonical spelling, empty if none could be read.
    ``states``: ``[T + 1]``.
    """

    step: _Int32
    group: _Int32
    episode: _Int32
    attempt: _Int32
    game: _Text
    tier: _Text
    puzzle_id: _Text
    puzzle: _Text
    turn_budget: _Int32
    seed: _Int64
    token_ids: _Int32s
    loss_mask: _UInt8s
    rollout_logprobs: _Float32s
    weight_versions: _Int32s
    turn_starts: _Int32s
    turn_ends: _Int32s
    turn_seeds: _Int64s
    answers: _Texts
    actions: _Texts
    effects: _Texts
    states: _Texts
    reward: _Float32
    end_reason: _Text
    seconds_generation: _Float64
    seconds_environment: _Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTrajectory(Trajectory):
    """The same with its judgement.

    ``cost_to_go``, ``cost_status``: ``[T + 1]``, null where the status is not ``exact``.
    ``cost_estimates``: ``[T + 1]`` whose drops are the credit where there is one: a value network's
    surrogate of the cost (paper, app:dqn); with ``oracle: turn_reward`` minus what the
    environment's rewards add up to, and then the costs themselves are unknown, as with a network;
    with ``oracle: expected`` minus the average credit of the turns so far (the costs stay known).
    ``teacher_logprobs``: ``[T]`` the soft-optimal teacher's log-probability of the action taken,
    null if it is unknown or there is no teacher; ``teacher_actions``: ``[T]`` an action sampled
    from that teacher in the same state, else empty.
    """

    cost_to_go: _NullableInt32s
    cost_status: _Texts
    teacher_logprobs: _NullableFloat64s
    teacher_actions: _Texts
    cost_estimates: _NullableFloat64s


def _schema_of(record: type[Trajectory]) -> pa.Schema:
    hints = get_type_hints(record, include_extras=True)
    columns = ((field.name, get_args(hints[field.name])[1]) for field in fields(record))
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


ROLLOUT_SCHEMA = _schema_of(Trajectory)
SCORED_SCHEMA = _schema_of(ScoredTrajectory)
BATCH_SCHEMA = pa.schema(
    [
        *SCORED_SCHEMA,
        pa.field("outcome_advantage", pa.float64(), nullable=False),
        pa.field("shifted_advantages", pa.list_(pa.float64()), nullable=False),
        pa.field("solver_advantages", pa.list_(pa.float64()), nullable=False),
        pa.field("step_advantages", pa.list_(pa.float64()), nullable=False),
        pa.field("turn_advantages", pa.list_(pa.float64()), nullable=False),
        pa.field("token_advantages", pa.list_(pa.float32()), nullable=False),
    ]
)
"""``shifted_advantages``: ``[T]`` eq:shifted_solver_advantage, null where a cost is unknown;
``solver_advantages``: ``[T]`` eq:rms_norm; ``step_advantages``: ``[T]`` GiGPO's, unweighted, 0
where it has no weight; ``turn_advantages``: ``[T]`` eq:final_advantage, with GiGPO's term;
``token_advantages``: ``[L]`` the same on the policy's tokens, 0 elsewhere."""


def to_rollout_batch(trajectories: Iterable[Trajectory]) -> pa.RecordBatch:
    """Return trajectories as one record batch of ``ROLLOUT_SCHEMA``, in the given order."""
    rows: list[dict[str, Any]] = [  # Any: Arrow takes Python rows
        {f.name: getattr(t, f.name) for f in fields(Trajectory)} for t in trajectories
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROLLOUT_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherTurns:
    """The soft-optimal teacher's columns of turns, in row order."""

    logprobs: np.ndarray
    """``[sum(T)]`` float64 of the action taken; NaN = unknown."""
    actions: tuple[str, ...]
    """``[sum(T)]`` sampled from the teacher; empty = unknown."""

    @classmethod
    def unasked(cls, num_turns: int) -> TeacherTurns:
        """Return the columns of a run without a teacher."""
        return cls(logprobs=np.full(num_turns, np.nan), actions=("",) * num_turns)

    @classmethod
    def concatenated(cls, rows: Sequence[TeacherTurns]) -> TeacherTurns:
        """Return the turns of several trajectories, in order."""
        return cls(
            logprobs=np.concatenate([*(row.logprobs for row in rows), np.zeros(0)]),
            actions=tuple(action for row in rows for action in row.actions),
        )


def with_costs(
    rollout: pa.RecordBatch,
    costs: np.ndarray | None,
    teacher: TeacherTurns | None = None,
    *,
    estimates: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Return the batch with the cost of every visited state and the teacher's columns.

    Args:
        rollout: ``ROLLOUT_SCHEMA``.
        costs: ``[sum(T + 1)]`` float64 in row order; ``inf`` = infinite, NaN = unknown; None = all
            are unknown.
        teacher: of all turns; None = there is no teacher.
        estimates: ``[sum(T + 1)]`` for ``cost_estimates``; None = there are none.

    Raises:
        TrajectoryError: the number of costs is not the number of states.
    """
    starts = rollout.column("states").offsets.to_numpy()
    starts = starts - starts[0]  # a slice of a batch keeps the batch's
    unknown = np.full(starts[-1], np.nan)
    costs = unknown if costs is None else costs
    estimates = unknown if estimates is None else estimates
    for given in (costs, estimates):
        if len(given) != starts[-1]:
            raise TrajectoryError(
                f"{len(given)} costs for {starts[-1]} visited states: need one for each"
            )
    offsets = pa.array(starts)
    exact = np.isfinite(costs)
    values = pa.array(np.where(exact, costs, 0).astype(np.int32), mask=~exact)
    status = pa.array(np.where(exact, EXACT, np.where(np.isnan(costs), UNKNOWN, INFINITE)))
    turns = rollout.column("effects").offsets.to_numpy()
    turn_offsets = pa.array(turns - turns[0])
    said = teacher or TeacherTurns.unasked(int(turns[-1] - turns[0]))
    lists = [
        pa.ListArray.from_arrays(offsets, values),
        pa.ListArray.from_arrays(offsets, status),
        pa.ListArray.from_arrays(turn_offsets, pa.array(said.logprobs, from_pandas=True)),
        pa.ListArray.from_arrays(turn_offsets, pa.array(said.actions, pa.string())),
        pa.ListArray.from_arrays(offsets, pa.array(estimates, from_pandas=True)),
    ]
    return pa.RecordBatch.from_arrays([*rollout.columns, *lists], schema=SCORED_SCHEMA)


def costs_of(row: Mapping[str, Any]) -> np.ndarray:
    """Return ``[T + 1]`` costs of one row as float64: ``inf`` = infinite, NaN = unknown."""
    stored = zip(row["cost_to_go"], row["cost_status"], strict=True)
    return np.array([cost_as_float(cost, status) for cost, status in stored])


def estimates_of(row: dict[str, Any]) -> np.ndarray | None:
    """Return ``[T + 1]`` a value network's estimates of one row; None without a network."""
    estimates = np.array(row["cost_estimates"], dtype=np.float64)  # a null becomes NaN
    return None if np.isnan(estimates).all() else estimates


def check_schema(
    table: pa.Table | pa.RecordBatch, schema: pa.Schema, *, name: object = "this"
) -> None:
    """Raise TrajectoryError unless the columns of ``name`` have the names and types of a schema."""
    if not table.schema.equals(schema):
        missing = sorted(set(schema.names) - set(table.schema.names))
        extra = sorted(set(table.schema.names) - set(schema.names))
        wrong = [
            name
            for name in schema.names
            if name in table.schema.names and table.schema.field(name) != schema.field(name)
        ]
        raise TrajectoryError(
            f"{name} is not a table of this stage: missing columns {missing}, unexpected columns "
            f"{extra}, columns of another type {wrong}; it was written by another version or stage"
        )
