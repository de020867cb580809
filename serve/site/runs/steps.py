"""The trajectories of one step as a list: filtered, sorted, one page at a time.

Only the needed columns and rows of a step's file are read: most of its bytes are tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import Query

from cast_ray import parquet
from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import TrajectoryError
from cast_ray.games.costs import json_cost
from cast_ray.games.game import Effect
from cast_ray.games.turn_quality import max_regret
from cast_ray.rollout.trajectory import BATCH_SCHEMA, costs_of

_PER_TURN = (
    "answers", "actions", "turn_starts", "turn_ends", "shifted_advantages", "solver_advantages",
    "step_advantages", "turn_advantages",
)  # fmt: skip
_PER_STATE = ("states", "cost_to_go", "cost_status")
_KEY = ("group", "episode", "attempt")


def read_row(
    path: Path, columns: Sequence[str], *, group: int, episode: int, attempt: int | None
) -> dict[str, Any] | None:
    """Return some columns of one row; None where there is none. Any: as Arrow returns it.

    Only the row group that holds it is read, and the keys of the others.

    Args:
        path: of a table of ``BATCH_SCHEMA``.
        columns: ``effects`` among them.
        group: of the trajectory.
        episode: likewise.
        attempt: likewise; None = the last.

    Raises:
        TrajectoryError: the file is broken, has other columns, or contradicts itself.
    """
    with _opened(path, [*columns, *_KEY]) as file:
        found: tuple[int, int, int] | None = None  # attempt, row group, row in it
        for part in range(file.num_row_groups):
            keys = parquet.read_rows(file, _KEY, part=part).to_pylist()
            for row, key in enumerate(keys):
                if (key["group"], key["episode"]) != (group, episode):
                    continue
                is_wanted = attempt in (None, key["attempt"])
                if is_wanted and (found is None or key["attempt"] > found[0]):
                    found = (key["attempt"], part, row)
        if found is None:
            return None
        _, part, row = found
        return _checked(path, parquet.read_rows(file, columns, part=part).slice(row, 1))[0]


@contextmanager
def _opened(path: Path, columns: Sequence[str]) -> Iterator[pq.ParquetFile]:
    """Yield the file; raise TrajectoryError unless it has these columns."""
    with parquet.opened(path) as file:
        for name in columns:
            index = file.schema_arrow.get_field_index(name)
            if index < 0 or file.schema_arrow.field(index).type != BATCH_SCHEMA.field(name).type:
                raise TrajectoryError(
                    f"{path.name} has no column {name} of type {BATCH_SCHEMA.field(name).type}: "
                    "another version of cast_ray wrote it"
                )
        yield file


def _checked(path: Path, table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows; raise TrajectoryError if a list is null or has another length."""
    rows = table.to_pylist()
    for row in rows:
        num_turns = None if row["effects"] is None else len(row["effects"])
        sizes = dict.fromkeys(_PER_TURN, num_turns)
        sizes |= dict.fromkeys(_PER_STATE, -1 if num_turns is None else num_turns + 1)
        for name, value in row.items():
            is_short = name in sizes and value is not None and len(value) != sizes[name]
            if value is None or is_short:
                raise TrajectoryError(
                    f"{path.name}: {name} of group {row.get('group')}, episode "
                    f"{row.get('episode')} does not fit its turns: see `cast-ray replay`"
                )
    return rows


_COLUMNS = (
    *_KEY, "puzzle_id", "game", "tier", "reward", "end_reason", "effects", "cost_to_go",
    "cost_status", "outcome_advantage", "states",
)  # fmt: skip
Number = Annotated[int, Query(ge=0, le=2**31 - 1)]
"""Of a step, a group, an episode, as Arrow stores it."""
_EndReason = Literal[
    "solved", "lost", "deadlock", "turn_budget", "token_budget", "truncated", "cancelled"
]
_NO_ACTION = (Effect.INVALID, Effect.ILLEGAL, Effect.TRUNCATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFilter:
    """Which trajectories, in which order, and which part of the list: the query of a request."""

    outcome: _EndReason | None = None
    """Their ``end_reason``."""
    invalid: bool = False
    """Only those with an invalid turn."""
    min_regret: Number | None = None
    """Only those that wasted at least this many moves in one turn."""
    sort: Literal["regret", "turns", "advantage"] | None = None
    """Largest first, those without a value last; None = by group and episode."""
    limit: Annotated[int, Query(ge=1, le=1000)] = 100
    offset: Number = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPage:
    """One page of a step's trajectories. Any: JSON values."""

    step: int
    groups: list[dict[str, Any]]
    """Of all trajectories of the step; ``state`` is their puzzle, ``Game.encode``."""
    total: int
    """Trajectories that pass the filter."""
    trajectories: list[dict[str, Any]]
    """``max_regret``: null where no turn has a regret; ``invalid``: turns without an action, or
    with a forbidden one."""


def read_step(path: Path) -> pl.DataFrame:
    """Return the trajectories of a step's file by group, episode and attempt.

    Tokens and texts are not read.

    Raises:
        TrajectoryError: as ``read_row``.
    """
    with _opened(path, _COLUMNS) as file:
        table = parquet.read_rows(file, _COLUMNS)
    rows, effects = _checked(path, table), pl.col("effects").list
    costs = [costs_of(row).tolist() for row in rows]
    regrets = [
        max_regret(known, row["effects"], game=row["game"])
        for row, known in zip(rows, costs, strict=True)
    ]
    frame = pl.DataFrame(table.drop(["cost_to_go", "cost_status"])).with_columns(
        turns=effects.len(),
        invalid=pl.sum_horizontal(effects.count_matches(effect.value) for effect in _NO_ACTION),
        ineffective=effects.count_matches(Effect.INEFFECTIVE.value),
        max_regret=pl.Series(regrets, dtype=pl.Int32),
        state=pl.col("states").list.first(),
        cost_start=pl.Series([known[0] for known in costs], dtype=pl.Float64),
        cost_end=pl.Series([known[-1] for known in costs], dtype=pl.Float64),
    )
    return frame.drop("effects", "states").sort(_KEY)


def page_of(step: int, rows: pl.DataFrame, which: StepFilter) -> StepPage:
    """Return one page of what ``read_step`` returned."""
    groups = rows.group_by("group", maintain_order=True).agg(
        pl.first("puzzle_id", "game", "tier", "state"),
        solved=(pl.col("end_reason") == SOLVED).sum(),
        episodes=pl.len(),
    )
    found = rows.drop("puzzle_id", "game", "tier", "state")
    if which.outcome is not None:
        found = found.filter(end_reason=which.outcome)
    if which.invalid:
        found = found.filter(pl.col("invalid") > 0)
    if which.min_regret is not None:
        found = found.filter(pl.col("max_regret") >= which.min_regret)
    if which.sort is not None:
        figure = _FIGURES[which.sort]
        found = found.sort(figure, descending=True, nulls_last=True, maintain_order=True)
    page = found.slice(which.offset, which.limit).to_dicts()
    costs = ("cost_start", "cost_end")
    return StepPage(
        step=step,
        groups=groups.to_dicts(),
        total=len(found),
        trajectories=[row | {name: json_cost(row[name]) for name in costs} for row in page],
    )


_FIGURES = {"regret": "max_regret", "turns": "turns", "advantage": "outcome_advantage"}
