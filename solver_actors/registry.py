"""The solvers by game, the built-in ones and those of plug-ins; start states solved one by one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cast_ray.envs.registry import is_benchmark
from cast_ray.errors import ConfigError
from cast_ray.functions import short_name
from cast_ray.games import GAMES, get_plugin
from solver_actors.solver import Solver, SolverEntry


def get_solver_entry(game: str) -> SolverEntry:
    """Return how a game is solved.

    Raises:
        ConfigError: there is no such game, it has no solver, or an added one is broken.
    """
    if game in GAMES:  # imported here: numba would slow every command's start
        return import_module(f"solver_actors.{game}.entry").SOLVER
    entry = None if is_benchmark(game) else get_plugin(game).solver
    if entry is None:
        raise ConfigError(
            f"{short_name(game)} has no exact solver: set oracle=none and algorithm=grpo, "
            "oracle=turn_reward (the environment's own rewards) or oracle=value_net "
            "(docs/value_network.md), or give its GamePlugin a solver"
        )
    if not isinstance(entry, SolverEntry):
        raise ConfigError(
            f"the solver of {game} is of type {type(entry).__name__}: give its GamePlugin a "
            "solver_actors.solver.SolverEntry"
        )
    return entry


def has_solver(game: str) -> bool:
    """Return whether a game has an exact solver; a benchmark has none.

    Raises:
        ConfigError: there is no such game or benchmark, or an added game is broken.
    """
    if is_benchmark(game):
        return False
    return game in GAMES or get_plugin(game).solver is not None


def has_deadlocks(game: str) -> bool:
    """Return whether an episode has to ask a solver if it is over.

    Raises:
        ConfigError: there is no such game or benchmark.
    """
    return has_solver(game) and get_solver_entry(game).has_deadlocks


class StartSolver:
    """Cost and difficulty of start states of one game; remembers the latest solver."""

    def __init__(self, game: str) -> None:
        self._entry = get_solver_entry(game) if has_solver(game) else None
        self.solve = None if self._entry is None else self.cost
        """``cost``, or None if the game has no solver."""
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
        """Return the game's difficulty measures; empty if it has none."""
        if self._entry is None or self._entry.measures is None:
            return {}
        return self._entry.measures(state, self._solver(state))

    def _solver(self, state: Any) -> Solver[Any]:
        assert self._entry is not None, "this game has no solver"
        if self._latest is None or self._latest[0] is not state:
            self._latest = (state, self._entry.build(state))
        return self._latest[1]
