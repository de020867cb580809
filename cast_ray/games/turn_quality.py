"""How good turns were, by the solver: regret, optimal and fatal turns.

Letters: ``T`` turns. Where a game hides part of its state, the cost after a turn is that of the
true state, so regret is not defined; ``Game.risk_of`` is the measure there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from cast_ray.games.game import Effect
from cast_ray.games.registry import hides_state


def has_regret(game: str) -> bool:
    """Return whether regret is defined in a game or benchmark: no cost knows what is hidden."""
    return not hides_state(game)


def turn_regrets(costs: Sequence[float], effects: Sequence[str], *, game: str) -> list[int | None]:
    """Return ``[T]`` moves that each turn wasted, from the stored costs alone.

    In a game of unit moves the best action lowers a finite cost by exactly one, so the cost after
    the action taken, less that after the best one, is ``after - before + 1``.

    Args:
        costs: ``[T + 1]``; inf = infinite, NaN = unknown.
        effects: ``[T]`` values of ``Effect``.
        game: name of the game.

    Returns:
        None for a turn that changed nothing (what it named is no scored action), where a cost is
        infinite or unknown, and where regret is not defined.
    """
    if not has_regret(game):
        return [None] * len(effects)
    return [
        int(after - before) + 1
        if effect == Effect.CHANGED and math.isfinite(before) and math.isfinite(after)
        else None
        for before, after, effect in zip(costs[:-1], costs[1:], effects, strict=True)
    ]


def max_regret(costs: Sequence[float], effects: Sequence[str], *, game: str) -> int | None:
    """Return the largest of ``turn_regrets``; None where there is none."""
    known = [regret for regret in turn_regrets(costs, effects, game=game) if regret is not None]
    return max(known, default=None)


def optimal_turns(costs: Sequence[float], *, game: str) -> list[bool | None]:
    """Return ``[T]`` whether each turn came one move closer to the goal.

    A turn without effect was not optimal, nor was one after which no win is left.

    Args:
        costs: ``[T + 1]``; inf = infinite, NaN = unknown.
        game: name of the game.

    Returns:
        None where there was nothing to gain (an infinite cost before) or it is unknown on either
        side, and where regret is not defined.
    """
    if not has_regret(game):
        return [None] * (len(costs) - 1)
    return [
        None if not math.isfinite(before) or math.isnan(after) else after == before - 1
        for before, after in pairwise(costs)
    ]


def first_fatal_turn(costs: Sequence[float]) -> int | None:
    """Return the number, from 0, of the first turn that made a finite cost infinite.

    Args:
        costs: ``[T + 1]``; inf = infinite, NaN = unknown.

    Returns:
        None where no turn did, or where what came before it is unknown: an earlier one may have.
    """
    for turn, (before, after) in enumerate(pairwise(costs)):
        if math.isnan(before) or math.isnan(after):
            return None
        if math.isfinite(before) and math.isinf(after):
            return turn
    return None
