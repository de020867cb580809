"""A game as a Gymnasium environment of numbers, for value networks.

``NumericRules`` are what the environment knows of a game: states as arrays, and one kernel call per
turn. The kernels implement the rules a second time, for speed; a test plays both environments in
parallel and compares every cell, mask, effect and end with ``Game``.

``plain_rules`` ask a game without kernels in Python. That is slower (16 µs per turn of Lights Out,
where kernels take 1 to 2), but fast enough to train a value network, which costs more per turn.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, SupportsIndex

import gymnasium
import numpy as np
from gymnasium import spaces

from cast_ray.envs.gym.render import METADATA, render
from cast_ray.envs.gym.text import Starts
from cast_ray.envs.text_env import DEADLOCK, LOST, SOLVED, TURN_BUDGET
from cast_ray.errors import ConfigError
from cast_ray.games.game import Effect, Game, StateT, Status, Tier
from cast_ray.games.puzzles import Puzzle

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
    prior: Callable[[np.ndarray], np.ndarray] | None = None
    """From ``[S, rows, cols]`` cells to ``[S]`` numbers >= 0 that count against each state in the
    last stage of a value network (paper, app:dqn); None = there is no prior."""
    rename: Callable[[str, Tier, np.random.Generator], str] | None = None
    """Return a board with its pieces named at random, with the names of a tier; None = pieces have
    no names."""


Observation = dict[str, np.ndarray]


class NumericEnv(gymnasium.Env[Observation, np.int64], Generic[StateT]):
    """Plays the episodes of ``GameTextEnv`` on arrays.

    Observations: ``cells`` ``[rows, cols]`` uint8 symbol numbers; ``action_mask`` ``[A]`` int8,
    1 for each action that changes the state. They are copies: no later turn changes them.
    """

    metadata = METADATA

    def __init__(
        self,
        game: Game[StateT],
        rules: NumericRules[StateT],
        *,
        tier: str = "id",
        puzzles: Sequence[Puzzle] = (),
        is_dead: Callable[[StateT], bool] | None = None,
        arrays_tier: Tier | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Prepare an environment of one tier.

        Args:
            game: the rules, for boards and ``is_dead``.
            rules: the same for arrays.
            tier: gives the size of the board, the actions and the turn budget.
            puzzles: drawn from at random by ``reset``; without any, a board is generated from its
                seed, which costs more than the episode.
            is_dead: as for ``TextEnv``. A state is decoded for it after every turn, which costs
                more than the turn.
            arrays_tier: whose symbols and actions the arrays have, of the same size
                (``widest_tier``); None = of ``tier``.
            render_mode: what ``render`` gives: ``"ansi"``, ``"rgb_array"``, or None.

        Raises:
            ConfigError: there is no such tier, or its boards are of any size.
            PuzzleError: a puzzle is broken, decided, or not of the tier's size.
        """
        self.render_mode = render_mode
        self._game = game
        self._rules = rules
        self._play = rules.play
        self._is_dead = is_dead
        self._arrays_tier = arrays_tier
        self._starts = Starts(
            game, tier=tier, puzzles=puzzles, size=rules.size, prepare=self._prepare
        )
        level = self._starts.tier
        if 0 in (level.rows, level.cols, level.num_pieces):
            raise ConfigError(f"tier {level.name} has boards of any size: arrays need one size")
        self.actions = rules.actions(arrays_tier or level)
        """``[A]`` what the numbers mean, in the spelling of the text environment."""
        self._num_actions = len(self.actions)
        self._turn_budget = level.turn_budget
        self._steps_left = 0
        self._arrays: tuple[np.ndarray, ...] = ()
        size = (level.rows, level.cols)
        num_symbols = rules.num_symbols(arrays_tier or level)
        self.observation_space = spaces.Dict(
            {
                "cells": spaces.Box(0, num_symbols - 1, size, np.uint8),
                "action_mask": spaces.MultiBinary(self._num_actions),
            }
        )
        self.action_space = spaces.Discrete(self._num_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, on ``options["board"]`` if given, and return its first observation.

        ``info["board"]`` is the state as text, with the hidden parts: not for the policy.

        Raises:
            ConfigError: there is neither a board nor a puzzle nor a generator.
            PuzzleError: that board is broken, decided or of another size.
        """
        super().reset(seed=seed)
        arrays, board = self._starts.draw(self.np_random, (options or {}).get("board"))
        self._arrays = tuple([array.copy() for array in arrays])
        self._steps_left = self._turn_budget
        return {"cells": arrays[0].copy(), "action_mask": arrays[1].copy()}, {"board": board}

    def step(self, action: SupportsIndex) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one turn with the number of an action, masked or not.

        Returns:
            Observation, reward (1 at success, else 0), terminated, truncated (by the turn budget),
            and info: ``effect`` and ``end_reason`` as in the text environment.

        Raises:
            RuntimeError: there is no episode, or it has ended.
            ValueError: no action has this number.
        """
        number = operator.index(action)
        if not 0 <= number < self._num_actions:
            raise ValueError(f"action must be from 0 to {self._num_actions - 1}, got {number}")
        if not self._steps_left:
            raise RuntimeError("the episode has ended or never began: call reset first")
        arrays = self._arrays
        effect, end_reason = OUTCOMES[self._play(number, *arrays)]
        self._steps_left -= 1
        if not end_reason:
            end_reason = self._end_reason()
        if end_reason:
            self._steps_left = 0
        truncated = end_reason == TURN_BUDGET
        return (
            {"cells": arrays[0].copy(), "action_mask": arrays[1].copy()},
            1.0 if end_reason == SOLVED else 0.0,
            bool(end_reason) and not truncated,
            truncated,
            {"effect": effect, "end_reason": end_reason},
        )

    def board(self) -> str:
        """Return the present state as ``Game.encode`` writes it, with the hidden parts.

        Raises:
            RuntimeError: no episode has begun.
        """
        if not self._arrays:
            raise RuntimeError("no episode has begun: call reset first")
        return self._rules.board(self._arrays)

    def render(self) -> Any:
        """Return the present board as ``render_mode`` says.

        Raises:
            RuntimeError: no episode has begun.
        """
        return render(self._game, self._game.decode(self.board()), self.render_mode)

    def _prepare(self, state: StateT, tier: Tier) -> tuple[tuple[np.ndarray, ...], str]:
        return self._rules.load(state, self._arrays_tier or tier), self._game.encode(state)

    def _end_reason(self) -> str:
        """Return why an undecided episode ends after this turn; empty if it continues."""
        if self._is_dead is not None and self._is_dead(self._game.decode(self.board())):
            return DEADLOCK
        return "" if self._steps_left else TURN_BUDGET


_EFFECTS = {Effect.CHANGED: CHANGED, Effect.INEFFECTIVE: INEFFECTIVE, Effect.ILLEGAL: ILLEGAL}
_STATUSES = {Status.PLAYING: PLAYING, Status.WON: WON, Status.LOST: LOST_GAME}


def plain_rules(
    game: Game[StateT],
    *,
    cells: Callable[[StateT], np.ndarray],
    num_symbols: Callable[[Tier], int],
    actions: Callable[[Tier], tuple[str, ...]],
) -> NumericRules[StateT]:
    """Return the numeric rules of a game without kernels.

    Args:
        game: the rules.
        cells: returns ``[rows, cols]`` uint8 symbol numbers of a state: only what the player may
            see.
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
