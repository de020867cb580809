"""What oracle actors are told of a value network; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cast_ray.games import get_game
from solver_actors.registry import get_solver_entry, has_solver

_MOST_LAYOUTS = 10_000
"""Whose tests are kept at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueScale:
    """How values become costs (paper, app:dqn)."""

    scale: float = 2.0
    failure: float = -1.5
    """V of a lost state: below -1, the least return of play at 0.01 a step and discount 0.99, and
    below what a prior takes off that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetOracle:
    """A value network in the place of the exact solvers."""

    network: Any
    """A ``QNetwork``. Any: its class would import torch in every actor."""
    scale: ValueScale
    device: str = "cpu"
    """``cpu`` or ``cuda``."""


class LossAtSight:
    """Proves states of one layout lost by what the game's solver sees at once; small to send."""

    def __init__(self, game: str, board: str) -> None:
        """Name the layout by any state of it."""
        self._game, self._board = game, board
        self._is_lost: Any = None  # a function of a state of any game

    def is_dead(self, state: Any) -> bool:
        """Return whether the state is proven lost, beyond the rules of the game."""
        if self._is_lost is None:
            loss_at_sight = get_solver_entry(self._game).loss_at_sight
            assert loss_at_sight is not None, f"{self._game} sees no loss: nobody should ask"
            self._is_lost = loss_at_sight(get_game(self._game).decode(self._board))
        return self._is_lost(state)

    def __reduce__(self) -> tuple[type[LossAtSight], tuple[str, str]]:
        """Send the names alone."""
        return LossAtSight, (self._game, self._board)


class LossesAtSight:
    """The same for states of any layout of a game; small to send."""

    def __init__(self, game: str) -> None:
        """Name the game, one of ``sees_losses``."""
        self._game = game
        self._tests: dict[Any, Any] = {}

    def __call__(self, state: Any) -> bool:
        """Return whether a state is proven lost, beyond the rules of the game."""
        entry = get_solver_entry(self._game)
        assert entry.loss_at_sight is not None, f"{self._game} sees no loss: nobody should ask"
        layout = entry.layout_key(state)
        if layout not in self._tests:
            if len(self._tests) >= _MOST_LAYOUTS:
                self._tests.clear()
            self._tests[layout] = entry.loss_at_sight(state)
        return self._tests[layout](state)

    def __reduce__(self) -> tuple[type[LossesAtSight], tuple[str]]:
        """Send the name alone."""
        return LossesAtSight, (self._game,)


def sees_losses(game: str) -> bool:
    """Return whether a game has a test that proves states lost without a search."""
    return has_solver(game) and get_solver_entry(game).loss_at_sight is not None
