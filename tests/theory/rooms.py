"""Small Sokoban rooms as arrays, for the tests of the theory."""

from __future__ import annotations

from itertools import count

import numpy as np

from cast_ray.algorithms.advantages import Array
from cast_ray.games import get_game
from solver_actors.registry import get_solver_entry
from tests.support.rooms import random_room
from tests.theory.finite_game import FiniteGame, tabulate

ROOM = "######\n#P__##\n#_X_O#\n#____#\n######"
"""N = 3; a push up or down is a deadlock."""
CORRIDOR = "########\n#_PX__O#\n########"
"""N = 3; the box can only go right, so there is no deadlock."""
TWO_BOXES = "######\n#P__##\n#_X_O#\n#__X_#\n#_O__#\n######"
"""N = 7."""


def room(text: str = ROOM, *, horizon: int = 6, deadlock_ends_episode: bool = True) -> FiniteGame:
    """Return a room with the exact costs of our solver."""
    game = get_game("sokoban")
    start = game.decode(text)
    solver = get_solver_entry("sokoban").build(start)
    return tabulate(
        game,
        start,
        solver.cost_to_go,
        horizon=horizon,
        deadlock_ends_episode=deadlock_ends_episode,
    )


def open_room(seed: int, *, horizon: int) -> FiniteGame:
    """Return a random room of one box that is neither solved nor dead at the start."""
    game = get_game("sokoban")
    for attempt in count():
        text = random_room(seed + attempt, num_boxes=1, max_floor=12)
        start = game.decode(text)
        cost = get_solver_entry("sokoban").build(start).cost_to_go([start])[0]
        if 0 < cost < np.inf:
            return room(text, horizon=horizon)
    raise AssertionError("count() does not end")


def some_logits(game: FiniteGame, seed: int = 0) -> Array:
    """Return ``[S, A]`` logits of a policy that favours nothing in particular."""
    return np.random.default_rng(seed).normal(size=game.next_state.shape)
