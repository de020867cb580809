"""How Minesweeper is solved, what a player can know of the mines, and how hard its puzzles are."""

from __future__ import annotations

import math

import numpy as np

from cast_ray.games.game import CellRisks, Status
from cast_ray.games.minesweeper import Minesweeper, every_reveal
from cast_ray.games.minesweeper_board import MinesweeperState
from solver_actors.minesweeper.expected import expected_credit
from solver_actors.minesweeper.solver import MinesweeperSolver, solve_minesweeper
from solver_actors.minesweeper.views import read_view
from solver_actors.solver import SolverEntry

_MINESWEEPER = Minesweeper()


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


def cell_risks(solver: MinesweeperSolver, state: MinesweeperState) -> CellRisks | None:
    """Return the chance of a mine in each hidden cell; None in a lost game and out of budget."""
    if _MINESWEEPER.status(state) is Status.LOST:
        return None
    found = solver.mine_probabilities(state)
    num_closed = found.size - state.revealed.bit_count()
    if int(np.isfinite(found).sum()) < num_closed:
        return None
    return tuple(
        tuple(None if math.isnan(chance) else chance for chance in row) for row in found.tolist()
    )


def _ask_everything(state: MinesweeperState) -> None:
    solver = MinesweeperSolver(state.layout)
    solver.mine_probabilities(state)
    solver.num_guesses(state)
    read_view(["1."], 1)


SOLVER = SolverEntry(
    build=solve_minesweeper,
    layout_key=lambda state: state.layout,
    next_action=MinesweeperSolver.next_action,  # an infinite K is no proof: it plays on
    good_actions=MinesweeperSolver.safest_moves,
    mistakes=every_reveal,
    has_deadlocks=False,
    cell_risks=cell_risks,
    expected_credit=lambda state, action, rescue: (
        expected_credit(state, action, rescue=rescue).mean
    ),
    read_view=read_view,
    measures=measure_minesweeper,
    warm_up=_ask_everything,
)
