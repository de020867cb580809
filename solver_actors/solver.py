"""What a solver is, how a game is solved, and what the solvers of unit-move games share.

A solver knows the distance to the goal from each state of one layout, and refuses all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from cast_ray.games.game import CellRisks, Game, StateT

State_contra = TypeVar("State_contra", bound=Hashable, contravariant=True)


class ProvesLoss(Protocol[State_contra]):
    """Knows lost states of one puzzle."""

    def is_dead(self, state: State_contra) -> bool:
        """Return whether the state is proven lost; an unknown cost is no proof."""
        ...


class Solver(ProvesLoss[State_contra], Protocol[State_contra]):
    """The cost-to-go of every state of one puzzle."""

    @property
    def memory_bytes(self) -> int:
        """Return what the solver keeps in memory."""
        ...

    def cost_to_go(self, states: Sequence[State_contra]) -> np.ndarray:
        """Return ``[len(states)]`` float64 costs in moves; inf = infinite, NaN = unknown."""
        ...

    def action_costs(self, state: State_contra) -> dict[str, float]:
        """Return the cost after each scored action, in the game's canonical order."""
        ...

    def best_action(self, state: State_contra) -> str | None:
        """Return the first action of least cost; None at cost 0, inf or unknown."""
        ...


def _best_action(solver: Solver[Any], state: Any) -> str | None:
    """Return ``solver.best_action(state)``, for solvers of any class."""
    return solver.best_action(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverEntry:
    """How one game is solved. Any: each game has a state type of its own.

    Functions of two arguments take a solver and a state of its layout.
    """

    build: Callable[[Any], Solver[Any]]
    """Return the solver of a state's layout; PuzzleError if the board is too large for it."""
    layout_key: Callable[[Any], Hashable]
    """Return what all states that share a solver have in common, exactly (no symmetries)."""
    next_action: Callable[[Any, Any], str | None] = _best_action
    """Return what a player who follows the solver does; None where it has no advice. By default
    the best action. Where a game hides part of its state, live episodes are given it as a hint: it
    must follow from what the player sees."""
    good_actions: Callable[[Any, Any], Sequence[str]] | None = None
    """Return all actions that a demonstrator may show, as good as ``next_action`` by what a player
    can know; one is drawn. None = ``next_action`` alone."""
    mistakes: Callable[[Any], Sequence[str]] | None = None
    """Return, from a state, the mistakes of a careful demonstrator. None = those of a careless
    one: the actions that change the state."""
    has_deadlocks: bool = True
    """Whether play can reach a state that is proven lost although the rules let it continue. Where
    it cannot, no episode has to ask a solver whether it is over."""
    has_tables: bool = False
    """Whether the cost of a state is a table entry where the layout is small. A service may then
    answer in its own process instead of asking an actor."""
    known_action: Callable[[Any, Any], str | None] | None = None
    """Return an optimal action that the solver remembers, without any search; None where it does
    not. For lines of many moves; ``next_action`` is asked otherwise."""
    cell_risks: Callable[[Any, Any], CellRisks | None] | None = None
    """Return the risk of each hidden cell, from what a player sees; None where it is unknown. For
    games that hide part of their state; ``Game.risk_of`` reads it."""
    expected_credit: Callable[[Any, str, str], float] | None = None
    """Return what an action earns on average over all that its player could not see, from the state
    before it, the action and ``advantage.rescue``. For games that hide part of their state."""
    read_view: Callable[[Sequence[str], int], Any] | None = None
    """Return, from ``Game.visible_rows`` and the number of hidden cells, some state that looks like
    this, None where none was found in time; PuzzleError if there is none. The solver must say the
    same of every such state."""
    loss_test: Callable[[Any], Callable[[Any], bool]] | None = None
    """Return, from a state, a quick test that proves states of its layout lost, without a search;
    None = there is none. With a value network, only this and the rules prove a state lost."""
    measures: Callable[[Any, Any], dict[str, float]] | None = None
    """Return the difficulty of a start state, given its solver; None = the cost says it all."""
    confirm: Callable[[Any, float], None] | None = None
    """Raise if another algorithm finds another cost of a start state; None = there is none."""
    warm_up: Callable[[Any], object] | None = None
    """Run, on an easy puzzle, the kernels that solving it does not call; None = there are none."""

    def demonstrated(self, solver: Any, state: Any) -> Sequence[str]:
        """Return what a demonstrator draws from in a state; () where the solver has no advice."""
        if self.good_actions is not None:
            return self.good_actions(solver, state)
        action = self.next_action(solver, state)
        return () if action is None else (action,)

    def demonstrated_mistakes(self, game: Game[Any], state: Any) -> Sequence[str]:
        """Return the mistakes of a careful demonstrator."""
        return careless_moves(game, state) if self.mistakes is None else self.mistakes(state)


def careless_moves(game: Game[Any], state: Any) -> Sequence[str]:
    """Return the actions that change a state; where nothing can move any more, all."""
    return game.scored_actions(state) or game.actions(state)


def action_costs(
    game: Game[StateT], cost_to_go: Callable[[Sequence[StateT]], np.ndarray], state: StateT
) -> dict[str, float]:
    """Return the cost after each scored action, in the game's canonical order.

    Args:
        game: the rules.
        cost_to_go: from states to ``[n]`` costs; inf = infinite, NaN = unknown.
        state: the state before the action.
    """
    actions = game.scored_actions(state)
    after = [game.apply(state, action).state for action in actions]
    return dict(zip(actions, cost_to_go(after).tolist(), strict=True))


class UnitMoveSolver(ABC, Generic[StateT]):
    """What the solvers of a game share in which each action costs one move."""

    game: ClassVar[Game[Any]]

    @abstractmethod
    def cost_to_go(self, states: Sequence[StateT]) -> np.ndarray:
        """Return ``[n]`` costs; inf = infinite, NaN = unknown."""

    def action_costs(self, state: StateT) -> dict[str, float]:
        """Return the cost after each scored action, in the game's canonical order."""
        return action_costs(self.game, self.cost_to_go, state)

    def best_action(self, state: StateT) -> str | None:
        """Return the first action that leaves one move less; None at cost 0, infinite or unknown.

        One move lowers the cost by one at most, so this is the first of least cost.
        An action of unknown cost is never chosen, even where it might come first; without any
        action that is known to lower the cost the answer is None.
        """
        cost = float(self.cost_to_go([state])[0])
        if cost == 0 or not np.isfinite(cost):
            return None
        after = self.action_costs(state)
        return next((action for action in after if after[action] == cost - 1), None)

    def is_dead(self, state: StateT) -> bool:
        """Return whether it is proven that no sequence of actions reaches the goal from here."""
        return bool(np.isinf(self.cost_to_go([state])[0]))


def check_layout(game: Game[Any], layout: Hashable, states: Sequence[Any]) -> None:
    """Raise ValueError unless every state belongs to the layout.

    Args:
        game: the rules; its states have a ``layout``. Any: each game has a state type of its own.
        layout: what all states of the solver have in common.
        states: those that it is asked about.
    """
    known = layout
    for state in states:
        if state.layout is known:
            continue
        if state.layout != layout:
            raise ValueError(
                f"this solver holds another layout than that of {game.encode(state)!r}: build one "
                "for it"
            )
        known = state.layout  # states of one origin share the object
