"""The solvers by game.

How difficult a puzzle is beside its cost-to-go.

Start states solved one after the other: what generators and importers ask.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from cast_ray.envs.registry import BENCHMARKS
from cast_ray.errors import ConfigError
from cast_ray.games import get_plugin
from cast_ray.games.game import Game
from cast_ray.games.minesweeper import MinesweeperState, every_reveal
from cast_ray.games.rush_hour import RushHourState
from cast_ray.games.sokoban import Sokoban, SokobanState
from solver_actors.minesweeper.solver import MinesweeperSolver, solve_minesweeper
from solver_actors.rush_hour.search import confirm_length
from solver_actors.rush_hour.table import RushHourSolver, rush_hour_layout_key, solve_rush_hour
from solver_actors.sokoban.bounds import sokoban_loss_at_sight
from solver_actors.sokoban.table import DEAD, SokobanSolver, solve_sokoban
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
            "solver_actors.registry.SolverEntry"
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
