"""How a value network takes the place of the solvers; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from solver_actors.registry import get_solver_entry, has_solver

_MAX_LAYOUTS = 10_000
"""How many layouts' tests are kept at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueScale:
    """How values become costs (paper, app:dqn)."""

    scale: float = 2.0
    failure: float = -1.5
    """V of a lost state: below -1, the least return of play at 0.01 a step and discount 0.99, and
    below what a prior takes off that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetOracle:
    """A value network that replaces the exact solvers."""

    network: Any
    """A ``QNetwork``. Any: its class would import torch in every actor."""
    scale: ValueScale
    device: str = "cpu"
    """``cpu`` or ``cuda``."""


class LossTest:
    """Proves states of a game lost by its ``SolverEntry.loss_test``; small to send."""

    def __init__(self, game: str) -> None:
        """Name a game that has such a test (``has_loss_test``)."""
        self._game = game
        self._entry = get_solver_entry(game)
        self._tests: dict[Hashable, Callable[[Any], bool]] = {}  # by layout

    def is_dead(self, state: Any) -> bool:
        """Return whether the state is proven lost, beyond the rules of the game."""
        assert self._entry.loss_test is not None, f"{self._game} has no loss test"
        layout = self._entry.layout_key(state)
        if layout not in self._tests:
            if len(self._tests) >= _MAX_LAYOUTS:
                self._tests.clear()
            self._tests[layout] = self._entry.loss_test(state)
        return self._tests[layout](state)

    def __reduce__(self) -> tuple[type[LossTest], tuple[str]]:
        """Send the name alone."""
        return LossTest, (self._game,)


def has_loss_test(game: str) -> bool:
    """Return whether a game has a test that proves states lost without a search."""
    return has_solver(game) and get_solver_entry(game).loss_test is not None
