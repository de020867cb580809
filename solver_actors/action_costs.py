"""What each action does to the cost, and which is best: one rule for every game of unit moves.

Not for Minesweeper, whose best action is its solver's own next reveal, never the least cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cast_ray.games.base import Game, StateT


def action_costs(
    game: Game[StateT], cost_to_go: Callable[[Sequence[StateT]], np.ndarray], state: StateT
) -> dict[str, float]:
    """Return the cost after each scored action, in the game's canonical order.

    Args:
        game: the rules.
        cost_to_go: from states to ``[n]`` costs; inf = infinite, NaN = unknown.
        state: the state before the action.
    """
    actions = game.scored_actions(state)
    after = [game.apply(state, action).state for action in actions]
    return dict(zip(actions, cost_to_go(after).tolist(), strict=True))


def best_action(
    cost_to_go: Callable[[Sequence[StateT]], np.ndarray],
    costs_after: Callable[[StateT], dict[str, float]],
    state: StateT,
) -> str | None:
    """Return the first action that leaves one move less; None at cost 0, infinite or unknown.

    One move lowers the cost by one at most, so this is the first of least cost.
    An action of unknown cost is never chosen, even where it might come first; without any action
    that is known to lower the cost the answer is None.

    Args:
        cost_to_go: from states to ``[n]`` costs; inf = infinite, NaN = unknown.
        costs_after: from a state to the cost after each action; every action is one move.
        state: the state before the action.
    """
    cost = float(cost_to_go([state])[0])
    if cost == 0 or not np.isfinite(cost):
        return None
    return next((action for action, after in costs_after(state).items() if after == cost - 1), None)
