"""Turns as the service shows them: what was played, and what the solver knows of its boards."""

from __future__ import annotations

import functools
import math
from dataclasses import asdict
from typing import Any

from cast_ray.games import get_game
from cast_ray.games.analysis import Analysis, visible_board
from cast_ray.games.costs import json_cost
from cast_ray.games.game import Game
from cast_ray.rollout.episode import PlayedTurn
from serve.site import schemas

_KEPT_BOARDS = 2048


def shown_analysis(analysis: Analysis) -> schemas.Analysis:
    """Return an analysis as it is written."""
    costs, line = analysis.action_costs, analysis.line
    risks = analysis.cell_risks
    return schemas.Analysis(
        cost=json_cost(analysis.cost),
        best=analysis.best,
        q=None if costs is None else {name: json_cost(cost) for name, cost in costs.items()},
        line=None if line is None else list(line),
        teacher=None if analysis.teacher is None else dict(analysis.teacher),
        mines=None if risks is None else [list(row) for row in risks],
    )


def shown_board(game: Game[Any], text: str, *, is_over: bool) -> schemas.Board:
    """Return a board as its player may see it; not to be changed."""
    return _shown_board(game.name, text, is_over)


@functools.lru_cache(maxsize=_KEPT_BOARDS)  # each is shown after one turn and before the next
def _shown_board(name: str, text: str, is_over: bool) -> schemas.Board:
    game = get_game(name)
    return schemas.Board(**asdict(visible_board(game, game.decode(text), is_over=is_over)))


def scored_turn(
    game: Game[Any],
    number: int,
    played: PlayedTurn,
    *,
    before: Analysis,
    cost_after: float | None,
    is_over: bool,
) -> schemas.Turn:
    """Return a turn with its value.

    Args:
        game: its rules.
        number: of the turn, from 0.
        played: what happened.
        before: of ``played.board``.
        cost_after: of ``played.board_after``; None = withheld.
        is_over: whether what was hidden may be shown.
    """
    return schemas.Turn(
        turn=number,
        board=shown_board(game, played.board, is_over=is_over),
        board_after=shown_board(game, played.board_after, is_over=is_over),
        answer=played.answer,
        action=played.action,
        effect=played.effect,  # pyright: ignore[reportArgumentType]: a value of Effect
        feedback=played.feedback,
        cost_before=json_cost(before.cost),
        cost_after=json_cost(cost_after),
        analysis=shown_analysis(before),
        regret=None if game.has_hidden_state else regret(before, played.action),
        excess_risk=excess_risk(game, before, played.action),
        num_tokens=played.num_tokens or None,
        seconds=round(played.seconds, 4),
    )


def regret(before: Analysis, action: str) -> int | None:
    """Return the moves lost against the best action; None where a cost is not finite or none is.

    An action without effect is not scored and has none: it costs a turn, not a move.
    """
    costs = before.action_costs or {}
    cost = costs.get(action, math.nan)
    finite = [other for other in costs.values() if math.isfinite(other)]
    if not math.isfinite(cost) or len(finite) == 0 or any(map(math.isnan, costs.values())):
        return None
    return int(cost - min(finite))


def excess_risk(game: Game[Any], before: Analysis, action: str) -> float | None:
    """Return how much likelier an action was to lose than the safest; None if it risked none."""
    risks = before.cell_risks
    risk = None if risks is None else game.risk_of(risks, action)
    return None if risk is None else risk.excess
