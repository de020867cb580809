"""The arrays of a game without a kernel: its own rules, asked in Python.

Slow beside a kernel (16 µs a turn of Lights Out, where kernels take 1 to 2), and enough to train a
value network: the network costs more than the turn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cast_ray.games.base import Effect, Game, StateT, Status, Tier
from cast_ray.gymnasium_envs.rules import (
    CHANGED,
    ILLEGAL,
    INEFFECTIVE,
    LOST_GAME,
    PLAYING,
    WON,
    NumericRules,
)

_EFFECTS = {Effect.CHANGED: CHANGED, Effect.INEFFECTIVE: INEFFECTIVE, Effect.ILLEGAL: ILLEGAL}
_STATUSES = {Status.PLAYING: PLAYING, Status.WON: WON, Status.LOST: LOST_GAME}


def plain_rules(
    game: Game[StateT],
    *,
    cells: Callable[[StateT], np.ndarray],
    num_symbols: Callable[[Tier], int],
    actions: Callable[[Tier], tuple[str, ...]],
) -> NumericRules[StateT]:
    """Return the numeric rules of a game that has none of its own.

    Args:
        game: the rules.
        cells: returns ``[rows, cols]`` uint8 symbol numbers of a state: what the player may see of
            it, and nothing else.
        num_symbols: how many numbers a cell can take on boards of a tier.
        actions: every action of a tier, in the spelling of ``Game.apply``; the mask allows those
            of ``Game.scored_actions``.
    """
    # The state itself travels with its arrays, in an array of one element.

    def mask_of(state: StateT, names: tuple[str, ...]) -> np.ndarray:
        allowed = set(game.scored_actions(state))
        return np.array([name in allowed for name in names], np.int8)

    def load(state: StateT, tier: Tier) -> tuple[np.ndarray, ...]:
        held = np.empty(2, object)
        held[:] = [state, actions(tier)]
        return cells(state).astype(np.uint8), mask_of(state, held[1]), held

    def play(action: int, shown: np.ndarray, mask: np.ndarray, held: np.ndarray) -> int:
        after = game.apply(held[0], held[1][action])
        held[0] = after.state
        shown[...] = cells(after.state)
        mask[:] = mask_of(after.state, held[1])
        return _EFFECTS[after.effect] + _STATUSES[game.status(after.state)]

    def size(state: StateT) -> tuple[int, int]:
        rows, cols = cells(state).shape
        return rows, cols

    return NumericRules(
        size=size,
        num_symbols=num_symbols,
        actions=actions,
        load=load,
        play=play,
        board=lambda arrays: game.encode(arrays[2][0]),
    )
