"""Sokoban for Gymnasium: the text environment, and a numeric face of it for value networks.

``register_envs()`` adds ``cast_ray/SokobanText-v0`` and ``cast_ray/Sokoban-v0``. Both play the
episodes of ``TextEnv``: reward 1 at success, else 0; the turn budget truncates, success and
deadlock terminate.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from cast_ray.env import SOLVED, TURN_BUDGET, TextEnv, TurnResult
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games.sokoban import ACTIONS, SYMBOLS, Sokoban, SokobanState
from cast_ray.generators.sokoban import generate_sokoban
from cast_ray.puzzles import Puzzle

TEXT_ID = "cast_ray/SokobanText-v0"
NUMERIC_ID = "cast_ray/Sokoban-v0"
MAX_ANSWER_CHARS = 4096
"""Longest answer that the action space samples; ``step`` takes longer ones too."""
MAX_MESSAGE_CHARS = 2048

_GAME = Sokoban()
_SYMBOL_NUMBERS = np.zeros(128, np.uint8)
_SYMBOL_NUMBERS[list(SYMBOLS.encode())] = range(len(SYMBOLS))
ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")


def register_envs() -> None:
    """Make both environments known to ``gymnasium.make``; a second call does nothing."""
    for env_id, name in ((TEXT_ID, "SokobanTextEnv"), (NUMERIC_ID, "SokobanEnv")):
        if env_id not in gymnasium.registry:
            gymnasium.register(id=env_id, entry_point=f"{__name__}:{name}")


class _SokobanEpisodes(gymnasium.Env[ObsT, ActT]):
    """Which puzzle is played next, and how an episode ends."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        *,
        tier: str = "id",
        puzzles: Sequence[Puzzle] = (),
        is_dead: Callable[[SokobanState], bool] | None = None,
    ) -> None:
        """Set up an environment of one tier.

        Args:
            tier: gives the size of the board and the turn budget.
            puzzles: drawn from at random by ``reset``; without any, a room is generated from its
                seed.
            is_dead: as for ``TextEnv``.

        Raises:
            ConfigError: there is no such tier.
            PuzzleError: a puzzle does not have the tier's size.
        """
        if tier not in _GAME.tiers:
            raise ConfigError(f"tier must be one of {', '.join(_GAME.tiers)}, got {tier!r}")
        self._tier = _GAME.tiers[tier]
        self._starts = [self._decode(puzzle.board) for puzzle in puzzles]
        self._episode = TextEnv(_GAME, turn_budget=self._tier.turn_budget, is_dead=is_dead)

    def _decode(self, board: str) -> SokobanState:
        """Return a board of the tier's size, or raise PuzzleError."""
        state = _GAME.decode(board)
        layout = state.layout
        if (layout.rows, layout.cols) != (self._tier.rows, self._tier.cols):
            raise PuzzleError(
                f"tier {self._tier.name} has {self._tier.rows} x {self._tier.cols} boards, this "
                f"one is {layout.rows} x {layout.cols}: use another tier"
            )
        return state

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> tuple[SokobanState, str]:
        """Begin an episode; return its start state and first message."""
        super().reset(seed=seed)
        if options and "board" in options:
            state = self._decode(options["board"])
        elif self._starts:
            state = self._starts[int(self.np_random.integers(len(self._starts)))]
        else:
            state = generate_sokoban(self._tier, self.np_random)
        return state, self._episode.reset(state)

    @staticmethod
    def _outcome(turn: TurnResult[SokobanState]) -> tuple[float, bool, bool, dict[str, Any]]:
        """Return reward, terminated, truncated and info of a turn."""
        truncated = turn.end_reason == TURN_BUDGET
        info = {
            "action": turn.action,
            "effect": turn.effect.value,
            "end_reason": turn.end_reason,
            "board": _GAME.encode(turn.state),
        }
        reward = 1.0 if turn.end_reason == SOLVED else 0.0
        return reward, bool(turn.end_reason) and not truncated, truncated, info


class SokobanTextEnv(_SokobanEpisodes[str, str]):
    """Observations are user messages (empty once the episode has ended), actions whole answers."""

    observation_space = spaces.Text(MAX_MESSAGE_CHARS, min_length=0, charset=string.printable)
    action_space = spaces.Text(MAX_ANSWER_CHARS, min_length=0, charset=string.printable)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode, on ``options["board"]`` if given, and return its first message.

        Raises:
            PuzzleError: that board is broken, solved or of another size.
        """
        state, message = self._begin(seed, options)
        return message, {"board": _GAME.encode(state)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn with an answer, which may be any text."""
        turn = self._episode.step(action)
        return turn.message, *self._outcome(turn)


class SokobanEnv(_SokobanEpisodes[dict[str, np.ndarray], np.int64]):
    """Observations are symbol numbers and the actions that change something.

    ``cells``: ``[rows, cols]`` uint8 index into ``SYMBOLS``; ``action_mask``: ``[4]`` int8.
    Actions are Up, Down, Left, Right as 0 to 3.
    """

    def __init__(
        self,
        *,
        tier: str = "id",
        puzzles: Sequence[Puzzle] = (),
        is_dead: Callable[[SokobanState], bool] | None = None,
    ) -> None:
        """Set up an environment of one tier; arguments as for the text environment."""
        super().__init__(tier=tier, puzzles=puzzles, is_dead=is_dead)
        size = (self._tier.rows, self._tier.cols)
        self.observation_space = spaces.Dict(
            {
                "cells": spaces.Box(0, len(SYMBOLS) - 1, size, np.uint8),
                "action_mask": spaces.MultiBinary(len(ACTIONS)),
            }
        )
        self.action_space = spaces.Discrete(len(ACTIONS))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode, on ``options["board"]`` if given, and return its first observation.

        Raises:
            PuzzleError: that board is broken, solved or of another size.
        """
        state, _ = self._begin(seed, options)
        return self._observation(state), {"board": _GAME.encode(state)}

    def step(
        self, action: np.int64
    ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Play one turn with the number of an action."""
        turn = self._episode.step(f"```{ACTIONS[action]}```")
        return self._observation(turn.state), *self._outcome(turn)

    def _observation(self, state: SokobanState) -> dict[str, np.ndarray]:
        symbols = np.frombuffer(_GAME.encode(state).replace("\n", "").encode(), np.uint8)
        legal = _GAME.scored_actions(state)
        return {
            "cells": _SYMBOL_NUMBERS[symbols].reshape(self._tier.rows, self._tier.cols),
            "action_mask": np.array([action in legal for action in ACTIONS], np.int8),
        }
