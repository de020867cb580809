"""The trajectories of one step as a list: filtered, sorted, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cast_ray.costs import ToldCost, told_cost
from cast_ray.games.base import Effect
from cast_ray.play_quality import max_regret
from cast_ray.run_browser.step_file import read_rows
from cast_ray.trajectory import costs_of

_COLUMNS = (
    "group", "episode", "attempt", "puzzle_id", "game", "tier", "reward", "end_reason", "effects",
    "cost_to_go", "cost_status", "outcome_advantage",
)  # fmt: skip
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
    """Most moves that one turn wasted (``max_regret``); None in Minesweeper, and where no turn has
    a regret."""
    cost_start: ToldCost
    cost_end: ToldCost
    outcome_advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFilter:
    """Which trajectories, in which order, and which part of the list."""

    outcome: str | None = None
    """Their ``end_reason``."""
    invalid: bool = False
    """Only those with an invalid turn."""
    min_regret: int | None = None
    """Only those that wasted at least so many moves in one turn."""
    sort: Literal["regret", "turns", "advantage"] | None = None
    """Largest first, those without such a figure last; None = by group and episode."""
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPage:
    """One page of a step's trajectories."""

    step: int
    groups: tuple[GroupRow, ...]
    """Of the whole step."""
    total: int
    """Trajectories that pass the filter."""
    trajectories: tuple[TrajectoryRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """What is read of a step's file."""

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
                solved=sum(row["reward"] > 0 for row in members),
                episodes=len(members),
            )
            for group, members in of_group.items()
        ),
        trajectories=tuple(map(_trajectory_row, rows)),
    )


def page_of(step: int, rows: StepRows, wanted: StepFilter) -> StepPage:
    """Return one page of a step's lists."""
    found = [row for row in rows.trajectories if _passes(row, wanted)]
    if wanted.sort is not None:
        figure = _FIGURES[wanted.sort]
        found.sort(key=lambda row: _descending(figure(row)))
    start = max(wanted.offset, 0)
    return StepPage(
        step=step,
        groups=rows.groups,
        total=len(found),
        trajectories=tuple(found[start : start + max(wanted.limit, 0)]),
    )


_FIGURES: dict[str, Callable[[TrajectoryRow], float | None]] = {
    "regret": lambda row: row.max_regret,
    "turns": lambda row: row.turns,
    "advantage": lambda row: row.outcome_advantage,
}


def _trajectory_row(row: dict[str, Any]) -> TrajectoryRow:  # Any: a row as Arrow hands it out
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
        cost_start=told_cost(costs[0]),
        cost_end=told_cost(costs[-1]),
        outcome_advantage=row["outcome_advantage"],
    )


def _passes(row: TrajectoryRow, wanted: StepFilter) -> bool:
    if wanted.outcome is not None and row.end_reason != wanted.outcome:
        return False
    if wanted.invalid and not row.invalid:
        return False
    least = wanted.min_regret
    return least is None or (row.max_regret is not None and row.max_regret >= least)


def _descending(figure: float | None) -> tuple[bool, float]:
    """Return a sort key: largest first, None last."""
    return (figure is None, 0.0 if figure is None else -figure)
