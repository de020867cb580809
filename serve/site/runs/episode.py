"""One stored trajectory turn by turn, with boards as they can be shown: the game is over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cast_ray.errors import CastRayError, TrajectoryError
from cast_ray.games import get_game
from cast_ray.games.analysis import VisibleBoard, visible_board
from cast_ray.games.costs import ToldCost, told_cost
from cast_ray.games.game import Game
from cast_ray.games.turn_quality import turn_regrets
from cast_ray.rollout.trajectory import costs_of
from serve.site.runs.steps import read_row

_COLUMNS = (
    "step", "group", "episode", "attempt", "game", "tier", "puzzle_id", "puzzle", "turn_budget",
    "seed", "turn_starts", "turn_ends", "answers", "actions", "effects", "states", "reward",
    "end_reason", "seconds_generation", "seconds_environment", "cost_to_go", "cost_status",
    "outcome_advantage", "shifted_advantages", "solver_advantages", "step_advantages",
    "turn_advantages",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAdvantages:
    """What one turn earned; None = unknown."""

    shifted: float | None
    """eq:shifted_solver_advantage, in moves."""
    solver: float | None
    """eq:rms_norm."""
    step: float | None
    """GiGPO's, unweighted."""
    turn: float | None
    """eq:final_advantage: what its tokens were trained with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """One answer and what it did."""

    turn: int
    state: str
    """``Game.encode`` of the board before, for whoever analyses it."""
    state_after: str
    board: VisibleBoard
    board_after: VisibleBoard
    answer: str
    """The policy's whole text."""
    action: str
    """Canonical spelling; empty where none could be read."""
    effect: str
    cost_before: ToldCost
    cost_after: ToldCost
    regret: int | None
    """As ``play_quality.turn_regrets`` tells it from the costs."""
    num_tokens: int
    """That the policy wrote, its end-of-turn token included."""
    advantages: TurnAdvantages


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpisode:
    """One trajectory."""

    step: int
    group: int
    episode: int
    attempt: int
    game: str
    tier: str
    puzzle_id: str
    seed: int
    turn_budget: int
    board: VisibleBoard
    """The first."""
    board_now: VisibleBoard
    """The last."""
    state_now: str
    cost_now: ToldCost
    end_reason: str
    reward: float
    outcome_advantage: float
    seconds_generation: float
    seconds_environment: float
    turns: tuple[StoredTurn, ...]


def read_episode(
    path: Path, *, group: int, episode: int, attempt: int | None
) -> StoredEpisode | None:
    """Return one trajectory of a step's file; None where it is not there.

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
    boards = _boards(path, row)
    costs = costs_of(row).tolist()
    return StoredEpisode(
        step=row["step"],
        group=row["group"],
        episode=row["episode"],
        attempt=row["attempt"],
        game=row["game"],
        tier=row["tier"],
        puzzle_id=row["puzzle_id"],
        seed=row["seed"],
        turn_budget=row["turn_budget"],
        board=boards[0],
        board_now=boards[-1],
        state_now=row["states"][-1],
        cost_now=told_cost(costs[-1]),
        end_reason=row["end_reason"],
        reward=row["reward"],
        outcome_advantage=row["outcome_advantage"],
        seconds_generation=row["seconds_generation"],
        seconds_environment=row["seconds_environment"],
        turns=_turns(row, boards, costs),
    )


def _boards(path: Path, row: dict[str, Any]) -> list[VisibleBoard]:
    """Return ``[T + 1]`` boards; the game has ended, so nothing is hidden."""
    try:
        game: Game[Any] = get_game(row["game"])
        return [visible_board(game, game.decode(state), is_over=True) for state in [*row["states"]]]
    except CastRayError as error:
        raise TrajectoryError(
            f"{path.name}: a board of group {row['group']}, episode {row['episode']} cannot be "
            f"shown: {error}"
        ) from None


def _turns(
    row: dict[str, Any], boards: list[VisibleBoard], costs: list[float]
) -> tuple[StoredTurn, ...]:
    regrets = turn_regrets(costs, row["effects"], game=row["game"])
    return tuple(
        StoredTurn(
            turn=turn,
            state=row["states"][turn],
            state_after=row["states"][turn + 1],
            board=boards[turn],
            board_after=boards[turn + 1],
            answer=row["answers"][turn],
            action=row["actions"][turn],
            effect=row["effects"][turn],
            cost_before=told_cost(costs[turn]),
            cost_after=told_cost(costs[turn + 1]),
            regret=regrets[turn],
            num_tokens=row["turn_ends"][turn] - row["turn_starts"][turn],
            advantages=TurnAdvantages(
                shifted=_known(row["shifted_advantages"][turn]),
                solver=_known(row["solver_advantages"][turn]),
                step=_known(row["step_advantages"][turn]),
                turn=_known(row["turn_advantages"][turn]),
            ),
        )
        for turn in range(len(row["effects"]))
    )


def _known(value: float | None) -> float | None:
    """Return a stored figure; None where it is null or NaN."""
    return None if value is None or not math.isfinite(value) else value
