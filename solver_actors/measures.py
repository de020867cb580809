"""How difficult a puzzle is beside its cost-to-go."""

from __future__ import annotations

from cast_ray.games.minesweeper import MinesweeperState
from cast_ray.games.rush_hour import RushHourState
from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.minesweeper import MinesweeperSolver
from solver_actors.rush_hour import RushHourSolver
from solver_actors.sokoban import DEAD, SokobanSolver
from solver_actors.solver import Solver

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


def measure_minesweeper(state: MinesweeperState, solver: MinesweeperSolver) -> dict[str, float]:
    """Return difficulty measures of a start state.

    Args:
        state: the start state.
        solver: that of its layout.

    Returns:
        ``open_cells`` after the first click; ``guesses``: reveals of the solver that may hit a
        mine, to the end of its game (not there out of budget).
    """
    measures = {"open_cells": float(state.revealed.bit_count())}
    num_guesses = solver.num_guesses(state)
    if num_guesses is not None:
        measures["guesses"] = float(num_guesses)
    return measures


def _num_pushes(state: SokobanState, solver: Solver[SokobanState]) -> int:
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
