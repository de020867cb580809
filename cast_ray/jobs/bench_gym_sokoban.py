"""gym-sokoban on our boards: what the numeric Sokoban environment is held against where that is
installed.

Its own generator plays no part: a room is set, and recorded actions are played in it. Both must
agree on which turn wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from typing import Any

import numpy as np

_FLOOR, _TARGET, _BOX_ON_TARGET, _BOX, _PLAYER = 1, 2, 3, 4, 5
_FIXED = {"#": 0, "_": _FLOOR, "X": _FLOOR, "P": _FLOOR}  # all others are targets
_MOVING = {"X": _BOX, "*": _BOX_ON_TARGET, "P": _PLAYER, "S": _PLAYER}
_PUSHES = {"Up": 1, "Down": 2, "Left": 3, "Right": 4}
PIXELS, CELLS = "rgb_array", "tiny_rgb_array"
"""Its observations: pictures of 16 pixels a cell, its default, or one pixel a cell."""


class GymSokoban:
    """An environment of gym-sokoban that is set to our boards. Any: the package's own types."""

    def __init__(self) -> None:
        from gym_sokoban.envs.sokoban_env import (  # pyright: ignore[reportMissingImports]
            SokobanEnv,
        )

        self._env: Any = SokobanEnv(reset=False)

    def play(self, board: str, actions: Sequence[str], *, observations: str) -> float:
        """Return the CPU seconds of an episode's turns.

        Raises:
            AssertionError: it won at another turn than the last one, or did not win there.
        """
        self._set(board)
        numbers, env, won = [_PUSHES[action] for action in actions], self._env, False
        begun = process_time()
        for number in numbers:
            assert not won, f"gym-sokoban has won before the end of {actions} on\n{board}"
            _, _, won, _ = env.step(number, observation_mode=observations)
        return process_time() - begun

    @property
    def is_won(self) -> bool:
        """Whether all boxes are on targets."""
        return bool(self._env._check_if_all_boxes_on_target())

    def _set(self, board: str) -> None:
        lines = board.split("\n")
        env = self._env
        env.room_fixed = np.array([[_FIXED.get(cell, _TARGET) for cell in line] for line in lines])
        env.room_state = np.array(
            [[_MOVING.get(cell, _FIXED.get(cell, _TARGET)) for cell in line] for line in lines]
        )
        env.player_position = np.argwhere(env.room_state == _PLAYER)[0]
        env.num_boxes = int((env.room_fixed == _TARGET).sum())
        env.boxes_on_target = int((env.room_state == _BOX_ON_TARGET).sum())
        env.dim_room, env.num_env_steps, env.max_steps = env.room_fixed.shape, 0, len(lines) ** 3
