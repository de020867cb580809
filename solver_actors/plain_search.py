"""Cost-to-go by breadth-first search over a game's own rules, in plain Python.

For games with few states, and as the reference that faster solvers are compared with.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cast_ray.games.game import Game, StateT, Status
from solver_actors.solver import UnitMoveSolver

MAX_STATES = 200_000
"""From a state that more can be reached from, the cost is unknown (some 10 s and 200 MB)."""
_BYTES_OF_A_STATE = 400


class PlainSolver(UnitMoveSolver[StateT]):
    """Costs by the rules alone; a class derived from this one names the ``game``.

    Every action that changes the state costs one move, and the player sees everything.
    """

    def __init__(self) -> None:
        self._costs: dict[StateT, float] = {}

    @property
    def memory_bytes(self) -> int:
        """Return about what the costs take."""
        return _BYTES_OF_A_STATE * len(self._costs)

    def cost_to_go(self, states: Sequence[StateT]) -> np.ndarray:
        """Return ``[n]`` costs in moves; inf = the goal cannot be reached, NaN = unknown."""
        for state in states:
            if state not in self._costs:
                found = plain_costs(self.game, state, max_states=MAX_STATES)
                self._costs.update(found or {state: math.nan})
        return np.array([self._costs[state] for state in states], np.float64)


def plain_costs(
    game: Game[Any], start: Any, *, max_states: float = math.inf
) -> Mapping[Any, float]:
    """Return the least number of moves to the goal from every state within reach of one.

    All of them are listed first, then searched backwards from the solved ones. Right for games in
    which every action costs one move and nothing is hidden.

    Args:
        game: its rules. Any: its states.
        start: where to begin.
        max_states: most states to list.

    Returns:
        Costs by state, inf where the goal cannot be reached; empty = there are more states.
    """
    before: dict[Any, list[Any]] = defaultdict(list)
    costs, open_states, solved = {start: math.inf}, deque([start]), []
    while open_states:
        if len(costs) > max_states:
            return {}
        state = open_states.popleft()
        if game.status(state) is not Status.PLAYING:
            solved += [state] * (game.status(state) is Status.WON)
            continue
        for action in game.scored_actions(state):
            after = game.apply(state, action).state
            before[after].append(state)
            if after not in costs:
                costs[after] = math.inf
                open_states.append(after)
    costs |= dict.fromkeys(solved, 0)
    open_states.extend(solved)
    while open_states:
        state = open_states.popleft()
        for earlier in before[state]:
            if math.isinf(costs[earlier]):
                costs[earlier] = costs[state] + 1
                open_states.append(earlier)
    return costs
