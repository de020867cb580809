"""The solution of one state."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from cast_ray.games import get_game
from solver_actors.oracle import Oracle

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


def solve(game: str, board: str) -> Solution:
    """Solve a board.

    Args:
        game: its name.
        board: as in a puzzle file: rows of cells, separated by line breaks.

    Raises:
        ConfigError: there is no such game, or it has no exact solver.
        PuzzleError: the board cannot be read, or is too large for the solver.
    """
    return solution_of(game, get_game(game).decode(board), Oracle(max_bytes=_CACHE_BYTES))


def solution_of(
    game: str, state: Hashable, oracle: Oracle, *, with_costs_after: bool = True
) -> Solution:
    """Return the solution of a state by an oracle; without ``costs_after`` if they are not wanted.

    Raises:
        PuzzleError: the board is too large for the game's solver.
    """
    solver, is_mark = oracle.solver_of(game, state), get_game(game).is_mark
    costs = solver.action_costs(state) if with_costs_after else {}
    return Solution(
        cost=float(solver.cost_to_go([state])[0]),
        best_action=solver.best_action(state),
        costs_after={action: cost for action, cost in costs.items() if not is_mark(action)},
    )
