"""What a solver is: the distance of states to the goal, and what each action does to it.

What each action does to the cost, and which is best: one rule for every game of unit moves.

Not for Minesweeper, whose best action is its solver's own next reveal, never the least cost.

A solver knows the states of one layout; those of any other it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from cast_ray.games.game import Game, StateT

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


def best_action(
    cost_to_go: Callable[[Sequence[StateT]], np.ndarray],
    costs_after: Callable[[StateT], dict[str, float]],
    state: StateT,
) -> str | None:
    """Return the first action that leaves one move less; None at cost 0, infinite or unknown.

    One move lowers the cost by one at most, so this is the first of least cost.
    An action of unknown cost is never chosen, even where it might come first; without any action
    that is known to lower the cost the answer is None.

    Args:
        cost_to_go: from states to ``[n]`` costs; inf = infinite, NaN = unknown.
        costs_after: from a state to the cost after each action; every action is one move.
        state: the state before the action.
    """
    cost = float(cost_to_go([state])[0])
    if cost == 0 or not np.isfinite(cost):
        return None
    return next((action for action, after in costs_after(state).items() if after == cost - 1), None)


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
