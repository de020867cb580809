"""The trajectories of one step as a list: filtered, sorted, one page at a time.

Only the needed columns and rows of a step's file are read: most of its bytes are tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import Query

from cast_ray import parquet
from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import TrajectoryError
from cast_ray.games.costs import JsonCost, json_cost
from cast_ray.games.game import Effect
from cast_ray.games.turn_quality import max_regret
from cast_ray.rollout.trajectory import BATCH_SCHEMA, costs_of

_PER_TURN = (
    "answers", "actions", "turn_starts", "turn_ends", "shifted_advantages", "solver_advantages",
    "step_advantages", "turn_advantages",
)  # fmt: skip
_PER_STATE = ("states", "cost_to_go", "cost_status")
_KEY = ("group", "episode", "attempt")


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of all rows. Any: rows as Arrow returns them.

    Args:
        path: of a table of ``BATCH_SCHEMA``.
        columns: ``effects`` among them.

    Raises:
        TrajectoryError: the file is broken, has other columns, or contradicts itself.
    """
    with _opened(path, columns) as file:
        return _checked(path, parquet.read_rows(file, columns))


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
        TrajectoryError: as ``read_rows``.
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
    "group", "episode", "attempt", "puzzle_id", "game", "tier", "reward", "end_reason", "effects",
    "cost_to_go", "cost_status", "outcome_advantage",
)  # fmt: skip
Number = Annotated[int, Query(ge=0, le=2**31 - 1)]
"""Of a step, a group, an episode, as Arrow stores it."""
_EndReason = Literal[
    "solved", "lost", "deadlock", "turn_budget", "token_budget", "truncated", "cancelled"
]
_NO_ACTION = (Effect.INVALID, Effect.ILLEGAL, Effect.TRUNCATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """The episodes of one puzzle."""

    group: int
    puzzle_id: str
    game: str
    tier: str
    solved: int
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRow:
    """One trajectory in a list."""

    group: int
    episode: int
    attempt: int
    end_reason: str
    reward: float
    turns: int
    invalid: int
    """Turns without an action, or with a forbidden one."""
    ineffective: int
    max_regret: int | None
    """Most moves that one turn wasted (``max_regret``); None where no turn has a regret."""
    cost_start: JsonCost
    cost_end: JsonCost
    outcome_advantage: float


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
    """One page of a step's trajectories."""

    step: int
    groups: tuple[GroupRow, ...]
    """Of all trajectories of the step."""
    total: int
    """Trajectories that pass the filter."""
    trajectories: tuple[TrajectoryRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """The lists of a step's file."""

    groups: tuple[GroupRow, ...]
    trajectories: tuple[TrajectoryRow, ...]
    """By group, episode and attempt."""


def read_step(path: Path) -> StepRows:
    """Return the lists of a step's file; tokens and texts are not read.

    Raises:
        TrajectoryError: the file is broken.
    """
    rows = read_rows(path, _COLUMNS)
    rows.sort(key=lambda row: (row["group"], row["episode"], row["attempt"]))
    of_group: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        of_group.setdefault(row["group"], []).append(row)
    return StepRows(
        groups=tuple(
            GroupRow(
                group=group,
                puzzle_id=members[0]["puzzle_id"],
                game=members[0]["game"],
                tier=members[0]["tier"],
                solved=sum(row["end_reason"] == SOLVED for row in members),
                episodes=len(members),
            )
            for group, members in of_group.items()
        ),
        trajectories=tuple(map(_trajectory_row, rows)),
    )


def page_of(step: int, rows: StepRows, which: StepFilter) -> StepPage:
    """Return one page of a step's lists."""
    found = [row for row in rows.trajectories if _passes(row, which)]
    if which.sort is not None:
        figure = _FIGURES[which.sort]
        found.sort(key=lambda row: _descending(figure(row)))
    return StepPage(
        step=step,
        groups=rows.groups,
        total=len(found),
        trajectories=tuple(found[which.offset : which.offset + which.limit]),
    )


_FIGURES: dict[str, Callable[[TrajectoryRow], float | None]] = {
    "regret": lambda row: row.max_regret,
    "turns": lambda row: row.turns,
    "advantage": lambda row: row.outcome_advantage,
}


def _trajectory_row(row: dict[str, Any]) -> TrajectoryRow:  # Any: a row as Arrow returns it
    costs, effects = costs_of(row).tolist(), row["effects"]
    return TrajectoryRow(
        group=row["group"],
        episode=row["episode"],
        attempt=row["attempt"],
        end_reason=row["end_reason"],
        reward=row["reward"],
        turns=len(effects),
        invalid=sum(effect in _NO_ACTION for effect in effects),
        ineffective=sum(effect == Effect.INEFFECTIVE for effect in effects),
        max_regret=max_regret(costs, effects, game=row["game"]),
        cost_start=json_cost(costs[0]),
        cost_end=json_cost(costs[-1]),
        outcome_advantage=row["outcome_advantage"],
    )


def _passes(row: TrajectoryRow, which: StepFilter) -> bool:
    if which.outcome is not None and row.end_reason != which.outcome:
        return False
    if which.invalid and not row.invalid:
        return False
    least = which.min_regret
    return least is None or (row.max_regret is not None and row.max_regret >= least)


def _descending(figure: float | None) -> tuple[bool, float]:
    """Return a sort key: largest first, None last."""
    return (figure is None, 0.0 if figure is None else -figure)
