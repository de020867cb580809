"""The numeric environment in which the value network learns: boards from text, a penalty per step.

Each of RLlib's env runners creates it from one dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import gymnasium
import numpy as np

from cast_ray.config.value_net import ValueNetConfig
from cast_ray.envs.gym import get_numeric_rules, make_numeric_env, widest_tier
from cast_ray.envs.gym.numeric import Observation
from cast_ray.games.puzzles import Puzzle


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """Where episodes start and what a step costs."""

    game: str
    tier: str
    boards: tuple[str, ...]
    """Start states as ``Game.encode`` writes them."""
    step_penalty: float
    shuffle_vehicles: bool = False
    """Name the pieces at random at every start (``NumericRules.rename``)."""
    is_dead: Callable[[Any], bool] | None = None  # Any: each game has its own state type
    """Ends an episode that can no longer be won; None = it continues."""

    def __repr__(self) -> str:
        """Return a short text, because RLlib writes it into every result."""
        return f"{len(self.boards)} boards of {self.game}:{self.tier}"


def start_settings(
    config: ValueNetConfig,
    puzzles: Sequence[Puzzle],
    *,
    is_dead: Callable[[Any], bool] | None = None,
) -> StartSettings:
    """Return where the episodes of a training start.

    Args:
        config: of the training.
        puzzles: to start from.
        is_dead: as in ``StartSettings``.
    """
    return StartSettings(
        game=config.game,
        tier=config.tier,
        boards=tuple(puzzle.board for puzzle in puzzles),
        step_penalty=config.dqn.step_penalty,
        shuffle_vehicles=config.shuffle_vehicles
        and get_numeric_rules(config.game).rename is not None,
        is_dead=is_dead,
    )


class ValueNetEnv(gymnasium.Env[Observation, np.int64]):
    """``NumericEnv`` with the arrays of the widest tier and reward success - step_penalty."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, config: dict[str, Any]) -> None:  # Any: RLlib's EnvContext
        """Set up an environment from ``config["start"]``, a ``StartSettings``."""
        start = config["start"]
        assert isinstance(start, StartSettings)
        self._start = start
        self._env = make_numeric_env(
            start.game,
            tier=start.tier,
            is_dead=start.is_dead,
            arrays_tier=widest_tier(start.game, start.tier),
        )
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on a random board."""
        super().reset(seed=seed)
        board = draw_board(self._start, self.np_random)
        observation, _ = self._env.reset(options={"board": board})
        return observation, {}

    def step(self, action: SupportsIndex) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one turn; a reward above 0 means that the board is solved."""
        observation, reward, terminated, truncated, _ = self._env.step(action)
        return observation, reward - self._start.step_penalty, terminated, truncated, {}


def draw_board(start: StartSettings, rng: np.random.Generator) -> str:
    """Return a random start board, with its pieces renamed if configured."""
    board = start.boards[int(rng.integers(len(start.boards)))]
    if not start.shuffle_vehicles:
        return board
    rename = get_numeric_rules(start.game).rename
    assert rename is not None
    return rename(board, widest_tier(start.game, start.tier), rng)
