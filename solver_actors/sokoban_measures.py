"""How difficult a Sokoban room is beside its N."""

from __future__ import annotations

from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.sokoban import DEAD, SokobanSolver

_SOKOBAN = Sokoban()


def measure_sokoban(state: SokobanState, solver: SokobanSolver) -> dict[str, float]:
    """Return difficulty measures of a start state.

    Args:
        state: the start state.
        solver: that of its layout.

    Returns:
        ``pushes``: pushes along the solver's line of N best actions (other lines of the same
        length may have more or fewer, so it can differ between mirrored rooms).
        ``dead_fraction``: share of all states of the layout, in reach or not, that are dead.
    """
    return {"pushes": float(_num_pushes(state, solver)), "dead_fraction": _dead_fraction(solver)}


def _num_pushes(state: SokobanState, solver: SokobanSolver) -> int:
    num_pushes = 0
    while (action := solver.best_action(state)) is not None:
        after = _SOKOBAN.apply(state, action).state
        num_pushes += after.boxes != state.boxes
        state = after
    return num_pushes


def _dead_fraction(solver: SokobanSolver) -> float:
    costs = solver.table.costs
    num_floor, num_boxes = (size - 1 for size in solver.table.binomials.shape)
    num_sets = len(costs) // num_floor
    # The table also has an entry, never reached, for a player on each of the boxes.
    num_impossible = num_sets * num_boxes
    return int((costs == DEAD).sum() - num_impossible) / (len(costs) - num_impossible)
