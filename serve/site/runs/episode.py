"""One stored trajectory as the service shows it: it is over, so nothing is hidden."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cast_ray.envs.registry import is_benchmark
from cast_ray.errors import CastRayError, TrajectoryError
from cast_ray.games import get_game
from cast_ray.games.costs import json_cost
from cast_ray.games.turn_quality import turn_regrets
from cast_ray.rollout.trajectory import costs_of
from serve.site import schemas
from serve.site.runs.steps import read_row
from serve.site.turn_values import shown_board

_COLUMNS = (
    "group", "episode", "game", "tier", "turn_budget", "seed", "turn_starts", "turn_ends",
    "answers", "actions", "effects", "states", "end_reason", "cost_to_go", "cost_status",
    "shifted_advantages", "solver_advantages", "step_advantages", "turn_advantages",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpisode:
    """One trajectory."""

    episode: schemas.Episode
    """Without analyses."""
    states: tuple[str, ...]
    """``[T + 1]`` ``Game.encode`` of every board, to be analysed."""


def read_episode(
    path: Path, *, group: int, episode: int, attempt: int | None
) -> StoredEpisode | None:
    """Return one trajectory of a step's file; None if it is not there.

    Args:
        path: of the file.
        group: of the trajectory.
        episode: likewise.
        attempt: likewise; None = the last.

    Raises:
        TrajectoryError: the file is broken, or of a game that is not installed.
    """
    row = read_row(path, _COLUMNS, group=group, episode=episode, attempt=attempt)
    if row is None:
        return None
    try:
        boards = [stored_board(row["game"], state) for state in row["states"]]
    except CastRayError as error:
        raise TrajectoryError(
            f"{path.name}: a board of group {group}, episode {episode} cannot be shown: {error}"
        ) from None
    found = schemas.Episode(
        id="",
        game=row["game"],
        tier=row["tier"],
        player="agent",
        model=None,
        seed=row["seed"],
        turn_budget=row["turn_budget"],
        board=boards[0],
        board_now=boards[-1],
        analysis=None,
        status="over",
        end_reason=row["end_reason"],
        error=None,
        turns=_turns(row, boards),
        created="",
    )
    return StoredEpisode(episode=found, states=tuple(row["states"]))


def stored_board(name: str, state: str) -> schemas.Board:
    """Return a board of a finished game or environment.

    Raises:
        CastRayError: the game is not installed, or it cannot decode the state.
    """
    if is_benchmark(name):
        return schemas.Board(rows=state.splitlines(), text=state, mines=None)
    return shown_board(get_game(name), state, is_over=True)


def _turns(row: dict[str, Any], boards: list[schemas.Board]) -> list[schemas.Turn]:
    costs = costs_of(row).tolist()
    regrets = turn_regrets(costs, row["effects"], game=row["game"])
    return [
        schemas.Turn(
            turn=turn,
            board=boards[turn],
            board_after=boards[turn + 1],
            answer=row["answers"][turn],
            action=row["actions"][turn],
            effect=row["effects"][turn],
            feedback="",
            cost_before=json_cost(costs[turn]),
            cost_after=json_cost(costs[turn + 1]),
            analysis=None,
            regret=regrets[turn],
            excess_risk=None,
            num_tokens=row["turn_ends"][turn] - row["turn_starts"][turn],
            seconds=None,
            advantages=schemas.Advantages(
                **{
                    name: _known(row[f"{name}_advantages"][turn])
                    for name in ("shifted", "solver", "step", "turn")
                }
            ),
        )
        for turn in range(len(row["effects"]))
    ]


def _known(value: float | None) -> float | None:
    """Return a stored figure; None where it is null or NaN."""
    return None if value is None or not math.isfinite(value) else value
