"""What the numeric environment knows of a game: states as arrays, and one kernel for a turn.

The kernels say the rules a second time, for speed. A test plays both faces side by side and holds
every cell, mask, effect and end of the kernels against ``Game``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import numpy as np

from cast_ray.env import LOST, SOLVED
from cast_ray.games.base import Effect, StateT, Tier

# Compiled into the kernels.
CHANGED, INEFFECTIVE, ILLEGAL, INVALID = 0, 3, 6, 9
PLAYING, WON, LOST_GAME = 0, 1, 2
OUTCOMES = tuple(
    (effect.value, end_reason)
    for effect in (Effect.CHANGED, Effect.INEFFECTIVE, Effect.ILLEGAL, Effect.INVALID)
    for end_reason in ("", SOLVED, LOST)
)
"""Effect and end reason by the number that a kernel returns: effect + status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericRules(Generic[StateT]):
    """One game for ``NumericEnv``. ``A`` is the number of actions of a tier."""

    size: Callable[[StateT], tuple[int, int]]
    """Rows and columns of a state."""
    num_symbols: Callable[[Tier], int]
    """How many numbers a cell can take: 0 to this, exclusive."""
    actions: Callable[[Tier], tuple[str, ...]]
    """The ``A`` actions in canonical spelling, in the order of their numbers."""
    load: Callable[[StateT, Tier], tuple[np.ndarray, ...]]
    """Arrays of a state: ``[rows, cols]`` uint8 cells, ``[A]`` int8 action mask, then whatever
    else the kernel needs. PuzzleError if the tier's actions do not fit the state."""
    play: Callable[..., int]
    """``(action, *arrays)``: carries the action out in the arrays, the mask included, and returns
    effect + status."""
    board: Callable[[tuple[np.ndarray, ...]], str]
    """The state in the arrays, as ``Game.encode`` writes it."""
