"""Speed of the value network's DQN job, and of RLlib's own DQN on a stock environment.

Both run in this process, one after the other, with the same number of games, replay ratio, batch
and n-step return. The stock side is CartPole, padded to as many observations and actions as ours,
with RLlib's default module of two hidden layers, wide enough for as many multiplications as our
network, and RLlib's own replay. The clock is the CPU time of this process, so other load matters
little.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from cast_ray.cluster.session import ray_session
from cast_ray.config.train import PuzzleConfig
from cast_ray.config.value_net import DqnConfig, ValueNetConfig, ValueNetShapeConfig
from cast_ray.training.value_net.dqn import build_config, network_shape
from solver_actors.value_net.network import QNetworkShape

CONFIG = ValueNetConfig(
    tier="mini",
    puzzles=PuzzleConfig(num_train=200, num_validation=1, num_held_out=1),
    network=ValueNetShapeConfig(d_model=32, num_heads=4, num_layers=2, output_size=128),
    dqn=DqnConfig(
        batch_size=256,
        replay_ratio=8.0,
        replay_capacity=50_000,
        learning_starts=1_000,
        target_update_every=2_000,
    ),
)
"""Network and replay ratio of ``configs/value_net/mini.yaml``."""


class PaddedCartPole(gymnasium.Env[np.ndarray, np.int64]):
    """CartPole, padded to a number of observations and actions."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, config: dict[str, Any]) -> None:  # Any: RLlib's EnvContext
        self._env = gymnasium.make("CartPole-v1")
        self._size: int = config["size"]
        self.observation_space = spaces.Box(-np.inf, np.inf, (self._size,), np.float32)
        self.action_space = spaces.Discrete(config["num_actions"])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        observation, _ = self._env.reset(seed=seed)
        return self._padded(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Push left or right: even and odd actions."""
        observation, reward, terminated, truncated, _ = self._env.step(int(action) % 2)
        return self._padded(observation), float(reward), terminated, truncated, {}

    def _padded(self, observation: np.ndarray) -> np.ndarray:
        padded = np.zeros(self._size, np.float32)
        padded[: len(observation)] = observation
        return padded


def bench_value_net(*, num_steps: int = 8_000, repeats: int = 3) -> dict[str, int | float]:
    """Return environment steps per CPU second of both sides, with updates, and their ratio.

    Args:
        num_steps: smallest number of steps per side and repeat.
        repeats: number of times both are measured; the fastest of each counts.
    """
    torch.set_num_threads(CONFIG.num_threads)
    shape = network_shape(CONFIG)
    width = _equal_width(shape)
    with ray_session(num_cpus=1):
        sides = {
            "value_net": build_config(CONFIG).build_algo(),
            "stock": _stock_config(build_config(CONFIG), shape, width).build_algo(),
        }
        best = dict.fromkeys(sides, 0.0)
        for algorithm in sides.values():
            algorithm.train()  # fills the replay and takes the first updates
        for _ in range(repeats):
            for name, algorithm in sides.items():
                best[name] = max(best[name], _steps_per_s(algorithm, num_steps))
        for algorithm in sides.values():
            algorithm.stop()
    return {
        "value_net_steps_per_s": round(best["value_net"], 1),
        "stock_steps_per_s": round(best["stock"], 1),
        "ratio": round(best["value_net"] / best["stock"], 3),
        "value_net_megaflops": round(2e-6 * _multiplications(shape), 2),
        "stock_megaflops": round(2e-6 * _mlp_multiplications(shape, width), 2),
        "stock_hidden_width": width,
        "batch_size": CONFIG.dqn.batch_size,
        "replay_ratio": CONFIG.dqn.replay_ratio,
        "repeats": repeats,
    }


def _stock_config(ours: DQNConfig, shape: QNetworkShape, width: int) -> DQNConfig:
    """Return our configuration with RLlib's own module and replay on the stock environment."""
    size = shape.rows * shape.cols + len(shape.actions)
    return (
        ours.environment(
            PaddedCartPole, env_config={"size": size, "num_actions": len(shape.actions)}
        )
        .rl_module(
            rl_module_spec=ours.get_default_rl_module_spec(),
            model_config=DefaultModelConfig(
                fcnet_hiddens=[width, width], fcnet_activation="relu", head_fcnet_hiddens=[]
            ),
        )
        .training(
            replay_buffer_config={
                "type": "EpisodeReplayBuffer",
                "capacity": CONFIG.dqn.replay_capacity,
            }
        )
        .callbacks(on_episode_end=[])
    )


def _steps_per_s(algorithm: Algorithm, num_steps: int) -> float:
    """Play and learn for a number of steps, and return steps per CPU second."""
    played, seconds = 0, 0.0
    before = _steps(algorithm.train())
    while played < num_steps:
        begun = process_time()
        result = algorithm.train()
        seconds += process_time() - begun
        played += _steps(result) - before
        before = _steps(result)
    return played / seconds


def _steps(result: dict[str, Any]) -> int:  # Any: RLlib's results
    return int(result["env_runners"]["num_env_steps_sampled_lifetime"])


def _multiplications(shape: QNetworkShape) -> int:
    """Return the multiplications of one forward pass of our network."""
    cells, width = shape.rows * shape.cols, shape.d_model
    # A layer: four projections of attention, two times four widths feed-forward, two products.
    layer = cells * (12 * width**2 + 2 * cells * width)
    readout = cells * width * shape.output_size + shape.output_size * len(shape.actions)
    return shape.num_layers * layer + readout


def _mlp_multiplications(shape: QNetworkShape, width: int) -> int:
    outside = shape.rows * shape.cols + 2 * len(shape.actions)
    return width**2 + outside * width


def _equal_width(shape: QNetworkShape) -> int:
    """Return the width of two hidden layers for as many multiplications."""
    outside = shape.rows * shape.cols + 2 * len(shape.actions)
    return round(-outside / 2 + (outside**2 / 4 + _multiplications(shape)) ** 0.5)
