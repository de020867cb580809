"""Difficulty measures of Sokoban rooms against boards counted by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from cast_ray.games.sokoban import Sokoban
from solver_actors.sokoban.entry import measure_sokoban
from solver_actors.sokoban.table import solve_sokoban
from tests.solver_actors.brute_force_sokoban import brute_force
from tests.support.rooms import random_room

GAME = Sokoban()


def measures(room: str) -> dict[str, float]:
    state = GAME.decode(room)
    return measure_sokoban(state, solve_sokoban(state))


def test_pushes_count_the_moves_that_move_a_box() -> None:
    # Up twice, Right pushes, Up, Right, Down pushes.
    assert measures("######\n#____#\n#_X__#\n#__O_#\n#P___#\n######")["pushes"] == 2


def test_dead_room_has_no_pushes() -> None:
    assert measures("X_P_O")["pushes"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_dead_fraction_is_that_of_all_states(seed: int) -> None:
    room = random_room(seed, num_boxes=1 + seed % 2, max_floor=12)
    costs = np.array(list(brute_force(room).values()))
    assert measures(room)["dead_fraction"] == pytest.approx(np.isinf(costs).mean())
