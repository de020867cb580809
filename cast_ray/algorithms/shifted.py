"""By how much each turn of a stored trajectory lowered the cost (eq:shifted_solver_advantage)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cast_ray.algorithms import advantages
from cast_ray.games import find_game
from cast_ray.games.game import Effect
from cast_ray.rollout.trajectory import costs_of, estimates_of

Array = advantages.Array


def shifted_advantages(
    costs: Array,
    effects: Sequence[str],
    *,
    game: str,
    puzzle: str,
    rescue: str,
    are_estimates: bool = False,
) -> Array:
    """Return ``[T]`` shifted advantages of one trajectory (paper, eq:shifted_solver_advantage).

    Args:
        costs: ``[T + 1]`` as in ``advantages.shifted_solver_advantage``, or a value network's.
        effects: ``[T]`` values of ``Effect``.
        game: name of the game.
        puzzle: text of a state of the puzzle.
        rescue: ``cost`` or ``zero``.
        are_estimates: the costs are estimates: ``advantages.estimated_advantage``.
    """
    if are_estimates:
        return advantages.estimated_advantage(costs)
    has_effect = np.array([effect == Effect.CHANGED for effect in effects], dtype=bool)
    return advantages.shifted_solver_advantage(
        costs,
        has_effect,
        rescue=rescue,
        win_from_infinite=win_from_infinite(game, puzzle),
    )


def win_from_infinite(game: str, puzzle: str) -> float:
    """Return what a win from an infinite cost earns (``Game.rescue_value``); 0 in a benchmark."""
    rules = find_game(game)
    return 0.0 if rules is None else rules.rescue_value(puzzle)


def shifted_of_table(scored: pa.Table, *, rescue: str) -> Array:
    """Return ``[B]`` shifted advantages of every turn, in row order."""
    columns = ["game", "puzzle", "cost_to_go", "cost_status", "cost_estimates", "effects"]
    parts: list[Array] = [np.zeros(0)]
    for row in scored.select(columns).to_pylist():
        estimates = estimates_of(row)
        parts.append(
            shifted_advantages(
                costs_of(row) if estimates is None else estimates,
                row["effects"],
                game=row["game"],
                puzzle=row["puzzle"],
                rescue=rescue,
                are_estimates=estimates is not None,
            )
        )
    return np.concatenate(parts)
