"""How Sokoban is solved, and how difficult its puzzles are besides their cost."""

from __future__ import annotations

from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.sokoban.bounds import sokoban_loss_test
from solver_actors.sokoban.search import SokobanSearchSolver
from solver_actors.sokoban.table import DEAD, SokobanSolver, solve_sokoban
from solver_actors.solver import Solver, SolverEntry

_SOKOBAN = Sokoban()


def measure_sokoban(state: SokobanState, solver: Solver[SokobanState]) -> dict[str, float]:
    """Return difficulty measures of a start state.

    Args:
        state: the start state.
        solver: that of its layout.

    Returns:
        ``pushes``: pushes along the solver's line of N best actions (other lines of the same
        length may have more or fewer, so it can differ between mirrored rooms).
        ``dead_fraction``: share of all states of the layout, in reach or not, that are dead; not
        there for a room above the table's cap.
    """
    measures = {"pushes": float(_num_pushes(state, solver))}
    if isinstance(solver, SokobanSolver):
        measures["dead_fraction"] = _dead_fraction(solver)
    return measures


def _num_pushes(state: SokobanState, solver: Solver[SokobanState]) -> int:
    num_pushes = 0
    while (action := solver.best_action(state)) is not None:
        after = _SOKOBAN.apply(state, action).state
        num_pushes += after.boxes != state.boxes
        state = after
    return num_pushes


def _known_action(solver: Solver[SokobanState], state: SokobanState) -> str | None:
    return solver.known_action(state) if isinstance(solver, SokobanSearchSolver) else None


def _search_once(state: SokobanState) -> None:
    SokobanSearchSolver(state.layout).cost_to_go([state])


def _dead_fraction(solver: SokobanSolver) -> float:
    costs = solver.table.costs
    num_floor, num_boxes = (size - 1 for size in solver.table.binomials.shape)
    num_sets = len(costs) // num_floor
    # The table also has an entry, never reached, for a player on each of the boxes.
    num_impossible = num_sets * num_boxes
    return int((costs == DEAD).sum() - num_impossible) / (len(costs) - num_impossible)


SOLVER = SolverEntry(
    build=solve_sokoban,
    layout_key=lambda state: state.layout,
    has_tables=True,
    known_action=_known_action,
    loss_test=sokoban_loss_test,
    measures=measure_sokoban,
    warm_up=_search_once,
)
