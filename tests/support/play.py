"""What the tests of several games play alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from cast_ray.games.game import Effect, Game, Status
from solver_actors.solver import Solver


def board_after(game: Game[Any], text: str, *actions: str) -> str:
    """Return the board after some actions, each of which must change it."""
    state = game.decode(text)
    for action in actions:
        transition = game.apply(state, action)
        assert (transition.effect, transition.feedback) == (Effect.CHANGED, "")
        state = transition.state
    return game.encode(state)


def check_best_play(game: Game[Any], solver: Solver[Any], state: Any) -> None:
    """Play best actions to the end: each lowers N by 1, and it ends won, or where N is infinite."""
    cost = solver.cost_to_go([state])[0]
    while (action := solver.best_action(state)) is not None:
        state = game.apply(state, action).state
        assert solver.cost_to_go([state])[0] == cost - 1
        cost -= 1
    assert (game.status(state) is Status.WON) == (cost == 0)
    assert cost == 0 or np.isinf(cost)
