"""The solution of one state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cast_ray.games import get_game
from cast_ray.games.game import CellRisks
from cast_ray.games.json_state import SolveRequest, read_state
from solver_actors.analyst.analyst import analyse_visible, optimal_line
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry

_CACHE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a game's exact solver says of a state; costs are moves, inf = lost, NaN = unknown.

    Lost is proven for Sokoban and Rush Hour; for Minesweeper it means that the solver loses.
    """

    cost: float
    """The cost-to-go N(s)."""
    best_action: str | None
    """The first action of least cost; None where the state is won, lost or unknown."""
    costs_after: dict[str, float]
    """The cost after each action that changes the state."""
    line: tuple[str, ...] | None = None
    """The actions of a player who follows the solver to the goal; None where there is no such line,
    or it was not asked for."""
    mine_probabilities: CellRisks | None = None
    """Of a player's view: by row and column; None where a cell is open, and for other boards."""


def solve(game: str, board: str) -> Solution:
    """Solve a board.

    Args:
        game: its name.
        board: rows of cells, separated by line breaks, in any form that ``cast-ray data import``
            reads; for Minesweeper also what a player sees, below a line ``mines: N``.

    Raises:
        ConfigError: there is no such game, or it has no exact solver.
        PuzzleError: the board cannot be read, or is too large for the solver.
    """
    request = read_state(get_game(game), board)
    return solution_of(request, Oracle(max_bytes=_CACHE_BYTES), with_line=True)


def solution_of(
    request: SolveRequest,
    oracle: Oracle,
    *,
    with_costs_after: bool = True,
    with_line: bool = False,
) -> Solution:
    """Return the solution of a state by an oracle; of a view what follows from it.

    Args:
        request: the state, or the view.
        oracle: has the solvers.
        with_costs_after: whether ``costs_after`` is wanted.
        with_line: whether ``line`` is wanted.

    Raises:
        PuzzleError: the board is too large for the game's solver, or no state looks like the view.
        ConfigError: the game has no solver that reads views.
    """
    game, state = request.game, request.state
    if request.view:
        seen = analyse_visible(game, *request.view)
        return Solution(
            cost=math.nan, best_action=seen.best, costs_after={}, mine_probabilities=seen.cell_risks
        )
    solver, rules = oracle.solver_of(game, state), get_game(game)
    costs = solver.action_costs(state) if with_costs_after else {}
    return Solution(
        cost=float(solver.cost_to_go([state])[0]),
        best_action=solver.best_action(state),
        costs_after={action: cost for action, cost in costs.items() if not rules.is_mark(action)},
        line=optimal_line(rules, get_solver_entry(game), solver, state) if with_line else None,
    )
