"""The solvers by game."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from solver_actors.minesweeper import solve_minesweeper
from solver_actors.sokoban import solve_sokoban
from solver_actors.solver import Solver


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverEntry:
    """How one game is solved. Any: each game has a state type of its own."""

    build: Callable[[Any], Solver[Any]]
    """Return the solver of a state's puzzle."""
    layout_key: Callable[[Any], Hashable]
    """Return what all states that share a solver have in common, exactly (no symmetries)."""


SOLVERS: dict[str, SolverEntry] = {
    "sokoban": SolverEntry(build=solve_sokoban, layout_key=lambda state: state.layout),
    "minesweeper": SolverEntry(build=solve_minesweeper, layout_key=lambda state: state.layout),
}
