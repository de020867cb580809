"""Played held-out games, read back from a table of ``SCORED_SCHEMA`` turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.credit import shifted_advantages
from cast_ray.errors import RunDirectoryError
from cast_ray.metrics import Success
from cast_ray.trajectory import SCORED_SCHEMA, check_schema, costs_of

_COLUMNS = ["puzzle_id", "puzzle", "game", "answers", "actions", "effects", "states"]
_COLUMNS += ["reward", "end_reason", "cost_to_go", "cost_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the policy and what it did."""

    state: str
    """The board that the policy saw."""
    cost_to_go: float
    """N of that board; inf = infinite, NaN = unknown."""
    answer: str
    action: str
    """Canonical spelling; empty where none could be read."""
    effect: str
    shifted_advantage: float
    """eq:shifted_solver_advantage, in moves; NaN = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One attempt at one puzzle."""

    puzzle_id: str
    game: str
    turns: tuple[Turn, ...]
    costs: tuple[float, ...]
    """``[T + 1]`` N(s_0) .. N(s_T)."""
    last_state: str
    end_reason: str
    is_solved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The held-out boards as one policy played them."""

    success: Success
    episodes: tuple[Episode, ...]
    """Empty where only the summary is left."""

    def by_puzzle(self) -> dict[str, list[Episode]]:
        """Return the attempts at each puzzle, both in stored order."""
        attempts: dict[str, list[Episode]] = {}
        for episode in self.episodes:
            attempts.setdefault(episode.puzzle_id, []).append(episode)
        return attempts


def read_episodes(path: Path, *, rescue: str) -> tuple[Episode, ...]:
    """Return the episodes of an evaluation; none where the file does not exist.

    Args:
        path: of the table.
        rescue: the run's ``advantage.rescue``.

    Raises:
        RunDirectoryError: the file is no Parquet.
        TrajectoryError: it is a table of another stage.
    """
    if not path.is_file():
        return ()
    try:
        check_schema(pq.read_schema(path).empty_table(), SCORED_SCHEMA)
        table = pq.read_table(path, columns=_COLUMNS)
    except (pa.ArrowException, OSError) as error:
        raise RunDirectoryError(
            f"{path} cannot be read ({error}); move it away to write the report without it"
        ) from None
    return tuple(_episode(row, rescue=rescue) for row in table.to_pylist())


def share_solved(episodes: Sequence[Episode]) -> float:
    """Return the share of episodes that solved their puzzle; at least one is needed."""
    return sum(episode.is_solved for episode in episodes) / len(episodes)


def _episode(row: dict[str, Any], *, rescue: str) -> Episode:  # Any: a row as Arrow hands it out
    costs = costs_of(row)
    credit = shifted_advantages(
        costs, row["effects"], game=row["game"], puzzle=row["puzzle"], rescue=rescue
    )
    turns = zip(
        row["states"][:-1],
        costs[:-1].tolist(),
        row["answers"],
        row["actions"],
        row["effects"],
        credit.tolist(),
        strict=True,
    )
    return Episode(
        puzzle_id=row["puzzle_id"],
        game=row["game"],
        turns=tuple(
            Turn(
                state=state,
                cost_to_go=cost,
                answer=answer,
                action=action,
                effect=effect,
                shifted_advantage=advantage,
            )
            for state, cost, answer, action, effect, advantage in turns
        ),
        costs=tuple(costs.tolist()),
        last_state=row["states"][-1],
        end_reason=row["end_reason"],
        is_solved=row["reward"] > 0,
    )
