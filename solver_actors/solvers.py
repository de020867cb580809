"""The solvers by game."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from cast_ray.environments import BENCHMARKS
from cast_ray.errors import ConfigError
from cast_ray.games import get_plugin
from cast_ray.games.base import Game
from cast_ray.games.minesweeper import every_reveal
from solver_actors.measures import measure_minesweeper, measure_rush_hour, measure_sokoban
from solver_actors.minesweeper import MinesweeperSolver, solve_minesweeper
from solver_actors.rush_hour import rush_hour_layout_key, solve_rush_hour
from solver_actors.rush_hour_search import confirm_length
from solver_actors.sokoban import solve_sokoban
from solver_actors.sokoban_bounds import sokoban_loss_at_sight
from solver_actors.solver import Solver


def _best_action(solver: Solver[Any], state: Any) -> str | None:
    """Return ``solver.best_action(state)``, for solvers of any class. Any: as in SolverEntry."""
    return solver.best_action(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverEntry:
    """How one game is solved. Any: each game has a state type of its own."""

    build: Callable[[Any], Solver[Any]]
    """Return the solver of a state's puzzle."""
    layout_key: Callable[[Any], Hashable]
    """Return what all states that share a solver have in common, exactly (no symmetries)."""
    next_action: Callable[[Any, Any], str | None] = _best_action
    """Return, from a solver and a state, what a player who follows the solver does there; None
    where it has no advice. The best action, unless the solver plays on at an infinite cost."""
    good_actions: Callable[[Any, Any], Sequence[str]] | None = None
    """Return, from a solver and a state, all that a demonstrator may show there, as good as
    ``next_action`` by what a player can know; one is drawn. None = ``next_action`` alone."""
    mistakes: Callable[[Any], Sequence[str]] | None = None
    """Return, from a state, what a careful demonstrator errs with. None = as a careless one does:
    with the actions that change it."""
    has_deadlocks: bool = True
    """Whether play can come to a state that is proven lost while its own rules let it go on. Where
    it cannot, no episode has to ask a solver whether it is over."""
    loss_at_sight: Callable[[Any], Callable[[Any], bool]] | None = None
    """Return, from a state, a quick test that proves states of its layout lost, without a search;
    None = there is none. Value networks know of lost states by it, and by the game's own rules."""
    measures: Callable[[Any, Any], dict[str, float]] | None = None
    """Return the difficulty of a start state, given its solver; None = the cost says it all."""
    confirm: Callable[[Any, float], None] | None = None
    """Raise if another algorithm finds another cost of a start state; None = there is none."""

    def demonstrated(self, solver: Any, state: Any) -> Sequence[str]:
        """Return what a demonstrator draws from in a state; () where the solver has no advice."""
        if self.good_actions is not None:
            return self.good_actions(solver, state)
        action = self.next_action(solver, state)
        return () if action is None else (action,)

    def demonstrated_mistakes(self, game: Game[Any], state: Any) -> Sequence[str]:
        """Return what a careful demonstrator errs with."""
        return careless_moves(game, state) if self.mistakes is None else self.mistakes(state)


def careless_moves(game: Game[Any], state: Any) -> Sequence[str]:
    """Return the actions that change a state; where nothing can move any more, all."""
    return game.scored_actions(state) or game.actions(state)


SOLVERS: dict[str, SolverEntry] = {
    "sokoban": SolverEntry(
        build=solve_sokoban,
        layout_key=lambda state: state.layout,
        loss_at_sight=sokoban_loss_at_sight,
        measures=measure_sokoban,
    ),
    "minesweeper": SolverEntry(
        build=solve_minesweeper,
        layout_key=lambda state: state.layout,
        next_action=MinesweeperSolver.next_action,  # an infinite K is no proof: it plays on
        good_actions=MinesweeperSolver.safest_moves,
        mistakes=every_reveal,
        has_deadlocks=False,
        measures=measure_minesweeper,
    ),
    "rush_hour": SolverEntry(
        build=solve_rush_hour,
        layout_key=rush_hour_layout_key,
        has_deadlocks=False,  # every slide can be taken back
        measures=measure_rush_hour,
        confirm=confirm_length,
    ),
}
"""Of the built-in games."""


def get_solver_entry(game: str) -> SolverEntry:
    """Return how a game is solved.

    Raises:
        ConfigError: there is no such game, it has no solver, or an added one is broken.
    """
    if game in SOLVERS:
        return SOLVERS[game]
    entry = get_plugin(game).solver
    if entry is None:
        raise ConfigError(
            f"{game} has no exact solver: train with oracle=value_net (docs/value_network.md), or "
            "give its GamePlugin a solver"
        )
    if not isinstance(entry, SolverEntry):
        raise ConfigError(
            f"the solver of {game} is of type {type(entry).__name__}: give its GamePlugin a "
            "solver_actors.solvers.SolverEntry"
        )
    return entry


def has_solver(game: str) -> bool:
    """Return whether anybody knows costs of a game exactly; of a benchmark nobody does.

    Raises:
        ConfigError: there is no such game or benchmark, or an added game is broken.
    """
    if game in BENCHMARKS:
        return False
    return game in SOLVERS or get_plugin(game).solver is not None


def has_deadlocks(game: str) -> bool:
    """Return whether an episode has to ask a solver if it is over.

    Raises:
        ConfigError: there is no such game or benchmark.
    """
    return has_solver(game) and get_solver_entry(game).has_deadlocks
