"""Cost-to-go in plain Python: breadth-first search over a game's own rules. For comparison."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from cast_ray.games.game import Game, Status


def plain_costs(game: Game[Any], start: Any) -> Mapping[Any, int]:
    """Return the least number of moves to the goal, for every state from which it can be reached.

    All states that can be reached from ``start`` are listed first, then searched backwards from the
    solved ones. Right for games in which every action costs one move and nothing is hidden.

    Args:
        game: its rules. Any: its states.
        start: where to begin.
    """
    before: dict[Any, list[Any]] = defaultdict(list)
    seen, open_states, solved = {start}, deque([start]), []
    while open_states:
        state = open_states.popleft()
        if game.status(state) is not Status.PLAYING:
            solved += [state] * (game.status(state) is Status.WON)
            continue
        for action in game.scored_actions(state):
            after = game.apply(state, action).state
            before[after].append(state)
            if after not in seen:
                seen.add(after)
                open_states.append(after)
    costs = dict.fromkeys(solved, 0)
    open_states.extend(solved)
    while open_states:
        state = open_states.popleft()
        for earlier in before[state]:
            if earlier not in costs:
                costs[earlier] = costs[state] + 1
                open_states.append(earlier)
    return costs
