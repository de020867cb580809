"""A game as a Gymnasium environment of numbers, for value networks: one kernel call a turn."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, SupportsIndex

import gymnasium
import numpy as np
from gymnasium import spaces

from cast_ray.env import DEADLOCK, SOLVED, TURN_BUDGET
from cast_ray.games.base import Game, StateT, Tier
from cast_ray.gymnasium_envs.rules import OUTCOMES, NumericRules
from cast_ray.gymnasium_envs.starts import Starts
from cast_ray.puzzles import Puzzle

Observation = dict[str, np.ndarray]


class NumericEnv(gymnasium.Env[Observation, np.int64], Generic[StateT]):
    """Plays the episodes of ``GameTextEnv`` on arrays.

    Observations: ``cells`` ``[rows, cols]`` uint8 symbol numbers; ``action_mask`` ``[A]`` int8,
    1 for each action that changes the state. They are the caller's own: no later turn touches them.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        game: Game[StateT],
        rules: NumericRules[StateT],
        *,
        tier: str = "id",
        puzzles: Sequence[Puzzle] = (),
        is_dead: Callable[[StateT], bool] | None = None,
        arrays_tier: Tier | None = None,
    ) -> None:
        """Set up an environment of one tier.

        Args:
            game: the rules in words, for boards and ``is_dead``.
            rules: the same in arrays.
            tier: gives the size of the board, the actions and the turn budget.
            puzzles: drawn from at random by ``reset``; without any, a board is generated from its
                seed, which costs more than the episode.
            is_dead: as for ``TextEnv``. A state is decoded for it after every turn, which costs
                more than the turn.
            arrays_tier: whose symbols and actions the arrays have, of the same size
                (``widest_tier``); None = of ``tier``.

        Raises:
            ConfigError: there is no such tier.
            PuzzleError: a puzzle is broken, decided, or not of the tier's size.
        """
        self._game = game
        self._rules = rules
        self._play = rules.play
        self._is_dead = is_dead
        self._arrays_tier = arrays_tier
        self._starts = Starts(
            game, tier=tier, puzzles=puzzles, size=rules.size, prepare=self._prepare
        )
        level = self._starts.tier
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

    def _prepare(self, state: StateT, tier: Tier) -> tuple[tuple[np.ndarray, ...], str]:
        return self._rules.load(state, self._arrays_tier or tier), self._game.encode(state)

    def _end_reason(self) -> str:
        """Return why an undecided episode ends after this turn; empty if it goes on."""
        if self._is_dead is not None and self._is_dead(self._game.decode(self.board())):
            return DEADLOCK
        return "" if self._steps_left else TURN_BUDGET
