"""How fast the numeric Gymnasium environments step, on one core and without wrappers.

Random play from the action mask is recorded first and then repeated under the clock, so that no
figure holds the time to choose an action. The clock is the CPU time of this process: what else runs
on the machine weighs little.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from cast_ray.games import get_game
from cast_ray.generators import get_generator
from cast_ray.gymnasium_envs import NUMERIC_IDS, make_numeric_env
from cast_ray.gymnasium_envs.numeric import NumericEnv
from cast_ray.puzzles import Puzzle, make_puzzle

NUM_PUZZLES = 64
TIER = "id"
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seconds:
    """CPU time of one repeat."""

    steps: float
    resets: float


def bench_gym(*, num_steps: int = 50_000, repeats: int = 5) -> dict[str, int | float]:
    """Return steps a second of each game, resets between episodes included, and of steps alone.

    Args:
        num_steps: steps of each game in each repeat, at least.
        repeats: how often the same episodes are played; the fastest repeat counts.
    """
    figures: dict[str, int | float] = {"num_puzzles": NUM_PUZZLES, "repeats": repeats}
    for game in NUMERIC_IDS:
        env = make_numeric_env(game, tier=TIER, puzzles=_puzzles(game))
        episodes = _record(env, num_steps)
        length = sum(map(len, episodes))
        seconds = [_play(env, episodes) for _ in range(repeats)]
        both = min(one.steps + one.resets for one in seconds)
        figures |= {
            f"{game}_steps_per_s": round(length / both),
            f"{game}_steps_alone_per_s": round(length / min(one.steps for one in seconds)),
            f"{game}_mean_episode_steps": round(length / len(episodes), 1),
        }
    return figures


def _puzzles(game: str) -> list[Puzzle]:
    """Return generated boards of one game; their cost plays no part here and is given as 0."""
    rules, rng = get_game(game), np.random.default_rng(SEED)
    states = [get_generator(game)(rules.tiers[TIER], rng) for _ in range(NUM_PUZZLES)]
    return [
        make_puzzle(rules, state, tier=TIER, cost=0, seed=SEED, measures={}) for state in states
    ]


def _record(env: NumericEnv[Any], num_steps: int) -> list[list[int]]:  # Any: any game's state
    """Return the actions of random episodes that ``_play`` can repeat, ``num_steps`` or more."""
    rng = np.random.default_rng(SEED)
    episodes: list[list[int]] = []
    recorded = 0
    observation, _ = env.reset(seed=SEED)
    while recorded < num_steps:
        actions: list[int] = []
        has_ended = False
        while not has_ended:
            actions.append(int(rng.choice(np.flatnonzero(observation["action_mask"]))))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            has_ended = terminated or truncated
        episodes.append(actions)
        recorded += len(actions)
        observation, _ = env.reset()
    return episodes


def _play(env: NumericEnv[Any], episodes: list[list[int]]) -> _Seconds:
    """Play recorded episodes again; the seed makes ``reset`` draw the same boards."""
    steps, resets = 0.0, 0.0
    seed: int | None = SEED
    for actions in episodes:
        begun = process_time()
        env.reset(seed=seed)
        reset = process_time()
        for action in actions:
            env.step(action)
        resets += reset - begun
        steps += process_time() - reset
        seed = None
    return _Seconds(steps=steps, resets=resets)
