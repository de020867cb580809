"""What a solver is: the distance of states to the goal, and what each action does to it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

import numpy as np

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
