"""The rule for costs after actions and the best of them, with made-up costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.solver import UnitMoveSolver, action_costs

GAME = Sokoban()
STATE = GAME.decode("___\n_P_\n___\nX_O")
INF, NAN = float("inf"), float("nan")


class MadeUp(UnitMoveSolver[SokobanState]):
    """A solver's double: these costs for the middle of the room and the cells beside it."""

    game = GAME

    def __init__(self, here: float, up: float, down: float, left: float, right: float) -> None:
        self._by_player = {4: here, 1: up, 7: down, 3: left, 5: right}

    def cost_to_go(self, states: Sequence[SokobanState]) -> np.ndarray:
        return np.array([self._by_player[state.player] for state in states])


def test_costs_are_in_canonical_order_and_leave_out_blocked_actions() -> None:
    state = GAME.decode("#P_\nX_O")
    found = action_costs(GAME, lambda states: np.arange(float(len(states))), state)
    assert list(found.items()) == [("Down", 0.0), ("Right", 1.0)]


@pytest.mark.parametrize(
    ("costs", "best"),
    [
        ((3, 4, 2, 2, 4), "Down"),
        ((3, INF, INF, INF, 2), "Right"),
        ((3, NAN, 4, 2, NAN), "Left"),
        ((3, NAN, NAN, NAN, 2), "Right"),
        ((3, NAN, 4, 4, NAN), None),
        ((0, 1, 1, 1, 1), None),
        ((INF, INF, INF, INF, INF), None),
        ((NAN, 5, 5, 5, 5), None),
    ],
    ids=[
        "first of two equal ones",
        "past dead ones",
        "past an unknown one",
        "the only known one",
        "none is known to lower the cost",
        "solved",
        "dead",
        "unknown",
    ],
)
def test_best_action_is_the_first_that_is_known_to_lower_the_cost(
    costs: tuple[float, ...], best: str | None
) -> None:
    assert MadeUp(*costs).best_action(STATE) == best
