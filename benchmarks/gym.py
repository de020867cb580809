"""Steps per second of the numeric Gymnasium environments, on one core and without wrappers.

Random play from the action mask is recorded first, then repeated and timed, so that choosing
actions takes no time. The clock is the CPU time of this process, so other load matters little.

If gym-sokoban is installed, it plays the same turns on our boards; its own generator is not used.
Both must agree on the turn that wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from time import process_time
from typing import Any

import numpy as np

from cast_ray.envs.gym import NUMERIC_IDS, make_numeric_env
from cast_ray.envs.gym.numeric import NumericEnv
from cast_ray.games import get_game
from cast_ray.games.generators import get_generator
from cast_ray.games.puzzles import Puzzle, make_puzzle

_FLOOR, _TARGET, _BOX_ON_TARGET, _BOX, _PLAYER = 1, 2, 3, 4, 5
_FIXED = {"#": 0, "_": _FLOOR, "X": _FLOOR, "P": _FLOOR}  # all others are targets
_MOVING = {"X": _BOX, "*": _BOX_ON_TARGET, "P": _PLAYER, "S": _PLAYER}
_PUSHES = {"Up": 1, "Down": 2, "Left": 3, "Right": 4}
PIXELS, CELLS = "rgb_array", "tiny_rgb_array"
"""Its observations: images of 16 pixels per cell (the default), or one pixel per cell."""


class GymSokoban:
    """An environment of gym-sokoban with our boards. Any: the package's own types."""

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


NUM_PUZZLES = 64
TIER = "id"
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seconds:
    """CPU time of one repeat."""

    steps: float
    resets: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Episode:
    """Random play from a board."""

    board: str
    actions: list[int]
    is_won: bool


def bench_gym(*, num_steps: int = 50_000, repeats: int = 5) -> dict[str, int | float]:
    """Return steps per second of each game, with resets between episodes and without.

    If gym-sokoban is installed, ``gym_sokoban_…`` is its speed without resets, for both kinds of
    observations, and ``sokoban_over_…`` the ratio of our speed to it.

    Args:
        num_steps: smallest number of steps per game and repeat.
        repeats: number of times the same episodes are played; the fastest counts.
    """
    figures: dict[str, int | float] = {"num_puzzles": NUM_PUZZLES, "repeats": repeats}
    for game in NUMERIC_IDS:
        env = make_numeric_env(game, tier=TIER, puzzles=_puzzles(game))
        episodes = _record(env, num_steps)
        length = _num_steps(episodes)
        seconds = [_play(env, episodes) for _ in range(repeats)]
        both = min(one.steps + one.resets for one in seconds)
        figures |= {
            f"{game}_steps_per_s": round(length / both),
            f"{game}_steps_alone_per_s": round(length / min(one.steps for one in seconds)),
            f"{game}_mean_episode_steps": round(length / len(episodes), 1),
        }
        if game == "sokoban" and find_spec("gym_sokoban"):
            ours = length / min(one.steps for one in seconds)
            few = episodes[:NUM_PUZZLES]
            figures |= _beside_gym_sokoban(few, env.actions, ours, repeats=repeats)
    return figures


def _puzzles(game: str) -> list[Puzzle]:
    """Return generated boards of one game; the cost is 0, as it is not needed."""
    rules, rng = get_game(game), np.random.default_rng(SEED)
    states = [get_generator(game)(rules.tiers[TIER], rng) for _ in range(NUM_PUZZLES)]
    return [
        make_puzzle(rules, state, tier=TIER, cost=0, seed=SEED, measures={}) for state in states
    ]


def _beside_gym_sokoban(
    episodes: list[_Episode], names: Sequence[str], ours: float, *, repeats: int
) -> dict[str, int | float]:
    """Return gym-sokoban's steps per second in the same turns, and the ratio of ours."""
    peer = GymSokoban()
    figures: dict[str, int | float] = {}
    num_steps = _num_steps(episodes)
    for name, observations in (("pixels", PIXELS), ("cells", CELLS)):
        seconds = []
        for _ in range(repeats):
            spent = 0.0
            for episode in episodes:
                actions = [names[action] for action in episode.actions]
                spent += peer.play(episode.board, actions, observations=observations)
                assert peer.is_won == episode.is_won, f"gym-sokoban disagrees on\n{episode.board}"
            seconds.append(spent)
        steps_per_s = num_steps / min(seconds)
        figures |= {
            f"gym_sokoban_{name}_steps_per_s": round(steps_per_s),
            f"sokoban_over_gym_sokoban_{name}": round(ours / steps_per_s, 1),
        }
    return figures


def _record(env: NumericEnv[Any], num_steps: int) -> list[_Episode]:  # Any: any game's state
    """Return random episodes for ``_play``, of at least ``num_steps`` steps in total."""
    rng = np.random.default_rng(SEED)
    episodes: list[_Episode] = []
    recorded = 0
    observation, info = env.reset(seed=SEED)
    while recorded < num_steps:
        actions: list[int] = []
        terminated, truncated, reward = False, False, 0.0
        while not terminated and not truncated:
            actions.append(int(rng.choice(np.flatnonzero(observation["action_mask"]))))
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
        episodes.append(_Episode(board=info["board"], actions=actions, is_won=reward == 1))
        recorded += len(actions)
        observation, info = env.reset()
    return episodes


def _num_steps(episodes: Sequence[_Episode]) -> int:
    return sum(len(episode.actions) for episode in episodes)


def _play(env: NumericEnv[Any], episodes: list[_Episode]) -> _Seconds:
    """Repeat recorded episodes; the seed makes ``reset`` draw the same boards."""
    steps, resets = 0.0, 0.0
    seed: int | None = SEED
    for episode in episodes:
        begun = process_time()
        env.reset(seed=seed)
        reset = process_time()
        for action in episode.actions:
            env.step(action)
        resets += reset - begun
        steps += process_time() - reset
        seed = None
    return _Seconds(steps=steps, resets=resets)
