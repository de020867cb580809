"""How Rush Hour is solved, and how difficult its puzzles are besides their cost."""

from __future__ import annotations

from cast_ray.games.rush_hour import RushHourState
from solver_actors.rush_hour.search import confirm_length, shortest_length
from solver_actors.rush_hour.table import RushHourSolver, solve_rush_hour
from solver_actors.solver import SolverEntry


def measure_rush_hour(state: RushHourState, solver: RushHourSolver) -> dict[str, float]:
    """Return difficulty measures of a start state.

    Args:
        state: the start state.
        solver: that of its layout.

    Returns:
        ``component_states``: states in reach, or as many as were met below the cap.
        ``first_slides``: slides that fit; ``best_slides``: those of them that lower N.
    """
    cost = solver.cost_to_go([state])[0]
    after = solver.action_costs(state)
    return {
        "component_states": float(sum(table.num_states for table in solver.tables)),
        "first_slides": float(len(after)),
        "best_slides": float(sum(value < cost for value in after.values())),
    }


def _search_once(state: RushHourState) -> None:
    shortest_length(state, max_length=8, node_budget=1000)


SOLVER = SolverEntry(
    build=solve_rush_hour,
    layout_key=lambda state: state.layout,  # letters included
    has_tables=True,
    has_deadlocks=False,  # every slide can be taken back
    measures=measure_rush_hour,
    confirm=confirm_length,
    warm_up=_search_once,
)
