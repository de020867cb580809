"""Start states solved one after the other: what generators and importers ask."""

from __future__ import annotations

from typing import Any

from solver_actors.solver import Solver
from solver_actors.solvers import get_solver_entry, has_solver


class StartSolver:
    """Cost and difficulty of start states of one game; remembers the latest solver."""

    def __init__(self, game: str) -> None:
        self._entry = get_solver_entry(game) if has_solver(game) else None
        self.solve = None if self._entry is None else self.cost
        """``cost``, or None where nobody solves the game."""
        self._latest: tuple[Any, Solver[Any]] | None = None  # Any: each game has its own states

    def cost(self, state: Any) -> float:
        """Return the cost-to-go, confirmed by a second algorithm where the game has one.

        Returns:
            The cost; ``inf`` = infinite, NaN = unknown.
        """
        cost = float(self._solver(state).cost_to_go([state])[0])
        if self._entry is not None and self._entry.confirm is not None:
            self._entry.confirm(state, cost)
        return cost

    def measures(self, state: Any) -> dict[str, float]:
        """Return the game's difficulty measures; none where it has none."""
        if self._entry is None or self._entry.measures is None:
            return {}
        return self._entry.measures(state, self._solver(state))

    def _solver(self, state: Any) -> Solver[Any]:
        assert self._entry is not None, "nobody solves this game"
        if self._latest is None or self._latest[0] is not state:
            self._latest = (state, self._entry.build(state))
        return self._latest[1]
