"""The base network: RLlib's Double DQN on the masked module, with checkpoints and resume.

The replay buffer is our own, because neither of RLlib's (2.60) is right for short episodes:

- ``EpisodeReplayBuffer`` gives the last transitions of an episode fewer than n rewards, but the
  loss still discounts the next value by gamma^n, and the end of the episode is lost: of three
  transitions that lead to a win, two continue from the solved board. After 25,000 steps values
  reach 2 to 3.5, though no return exceeds 0.99.
- ``PrioritizedEpisodeReplayBuffer`` leaves out transitions with fewer than n steps to come, so
  the winning move is never learned.
"""

from __future__ import annotations

import time
from abc import ABCMeta
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

from cast_ray.config.value_net import ValueNetConfig
from cast_ray.datasets.splits import make_boards
from cast_ray.errors import LearnerError
from cast_ray.seeds import derive_seed
from cast_ray.training.value_net.directory import BaseCheckpoints
from cast_ray.training.value_net.env import StartSettings, ValueNetEnv, start_settings
from cast_ray.training.value_net.rl_module import MaskedQModule
from cast_ray.training.value_net.states import check_values
from solver_actors.value_net.network import QNetwork, QNetworkShape, shape_for


class _KnownByName(ABCMeta):
    """Supports RLlib's test ``"EpisodeReplayBuffer" in type``, which it also applies to classes."""

    def __contains__(cls, text: str) -> bool:
        return text in cls.__name__


class NStepEpisodeReplayBuffer(EpisodeReplayBuffer, metaclass=_KnownByName):
    """Uniform replay, seeded, in which each transition knows how many rewards it sums."""

    def __init__(self, *, seed: int, **kwargs: Any) -> None:
        """Take a seed in addition to RLlib's arguments."""
        super().__init__(**kwargs)
        self.rng = np.random.default_rng(seed)

    # Any: RLlib's method returns one of five types; of episodes, as DQN asks, it is this one.
    def sample(self, *args: Any, n_step: int, **kwargs: Any) -> Any:
        """Return transitions as RLlib does, but correct ones at the end of an episode.

        Each is an episode of one step: o_t, a_t, the discounted sum of up to ``n_step`` rewards,
        and the observation after them. Its model output ``n_step`` is their number, and it is
        terminated or truncated if the episode ended with them.
        """
        sampled: Any = super().sample(*args, n_step=n_step, **kwargs)
        for transition in sampled:
            place = self.episode_id_to_index[transition.id_] - self._num_episodes_evicted
            episode = self.episodes[place]
            num_left = len(episode) - transition.t_started
            if num_left < n_step:
                transition.extra_model_outputs["n_step"].data[:] = num_left
                transition.is_terminated = episode.is_terminated
                transition.is_truncated = episode.is_truncated
        return sampled


_FRAGMENT = 4
"""Steps of each game between two rounds of updates, at least."""
_SMOOTHED_EPISODES = 200
_LEAST_STEPS_A_ROUND = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRound:
    """The result of a round of play and updates."""

    steps: int
    """Environment steps since the run started."""
    success: float | None
    """Share of the last episodes that solved their board; None before one has ended."""
    loss: float | None
    """None before the first update."""
    q_mean: float | None
    steps_per_s: float
    """Of this round, play and updates together."""


def network_shape(config: ValueNetConfig) -> QNetworkShape:
    """Return the shape of the network that a configuration trains."""
    return shape_for(config.game, config.tier, **asdict(config.network))


def build_config(
    config: ValueNetConfig, start: StartSettings | None = None, *, steps_done: int = 0
) -> DQNConfig:
    """Return RLlib's configuration of the base network's training, for an Algorithm or for Tune.

    Args:
        config: of the network.
        start: where episodes start; None = the training boards of ``config.puzzles``.
        steps_done: by the resumed run. Its replay buffer is not in the checkpoint and is refilled
            before the next update.

    Raises:
        ConfigError, PuzzleError: game, tier or puzzles do not exist.
    """
    dqn = config.dqn
    if start is None:
        start = start_settings(config, make_boards(config.game, config.tier, config.puzzles).train)
    # RLlib counts one env runner too many if they are separate actors.
    players = dqn.num_env_runners / (dqn.num_env_runners + 1) if dqn.num_env_runners else 1
    return (
        DQNConfig()
        .environment(ValueNetEnv, env_config={"start": start})
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=MaskedQModule, model_config={"shape": network_shape(config)}
            )
        )
        .env_runners(
            num_env_runners=dqn.num_env_runners,
            num_envs_per_env_runner=dqn.envs_per_env_runner,
            rollout_fragment_length=max(dqn.n_step, _FRAGMENT),
        )
        .learners(num_learners=0, num_gpus_per_learner=1 if config.device == "cuda" else 0)
        .training(
            lr=dqn.lr,
            gamma=dqn.gamma,
            n_step=dqn.n_step,
            double_q=True,
            dueling=False,
            num_atoms=1,
            train_batch_size_per_learner=dqn.batch_size,
            training_intensity=dqn.replay_ratio * players,
            grad_clip=dqn.grad_clip,  # pyright: ignore[reportArgumentType]  # declared int
            epsilon=[(0, dqn.epsilon_start), (dqn.epsilon_steps, dqn.epsilon_end)],
            target_network_update_freq=dqn.target_update_every,
            num_steps_sampled_before_learning_starts=dqn.learning_starts + steps_done,
            replay_buffer_config={
                "type": NStepEpisodeReplayBuffer,
                "capacity": dqn.replay_capacity,
                "seed": derive_seed(config.seed, "value_net", "replay"),
            },
        )
        .callbacks(on_episode_end=_log_success)
        .reporting(
            min_sample_timesteps_per_iteration=_LEAST_STEPS_A_ROUND,
            metrics_num_episodes_for_smoothing=_SMOOTHED_EPISODES,
        )
        .debugging(seed=derive_seed(config.seed, "value_net", "dqn") % 2**31, log_level="ERROR")
    )


def train_base(
    config: ValueNetConfig,
    start: StartSettings,
    checkpoints: BaseCheckpoints,
    *,
    on_round: Callable[[BaseRound], None],
    on_note: Callable[[str], None],
) -> QNetwork:
    """Return the base network after ``dqn.steps`` environment steps, from the newest checkpoint.

    Needs a running Ray. Resuming is not exact to the bit: the games restart, and the replay buffer
    is refilled before the next update.

    Raises:
        LearnerError: the loss is not finite, or the values have diverged.
    """
    done, newest, damaged = checkpoints.newest()
    for text in damaged:
        on_note(text)
    torch.set_num_threads(config.num_threads)
    algorithm = build_config(config, start, steps_done=done).build_algo()
    try:
        if newest is not None:
            algorithm.restore_from_path(str(newest.absolute()))
            on_note(f"resumed after {done:,} steps from {newest}; refilling the replay buffer")
        kept = done
        while done < config.dqn.steps:
            round_ = _play_round(algorithm, done)
            done = round_.steps
            on_round(round_)
            is_last = done >= config.dqn.steps
            if is_last or done - kept >= config.checkpoint_every:
                network = network_of(algorithm, network_shape(config))
                check_values(network, start, step_penalty=config.dqn.step_penalty)
                if is_last:
                    return network
                checkpoints.save(done, algorithm.save_to_path)
                kept = done
        return network_of(algorithm, network_shape(config))
    finally:
        algorithm.stop()


def network_of(algorithm: Algorithm, shape: QNetworkShape) -> QNetwork:
    """Return a copy of the online network of an algorithm's learner."""
    assert algorithm.learner_group is not None
    weights: Any = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]  # Any: RLlib's state
    prefix = "network."
    network = QNetwork(shape)
    network.load_state_dict(
        {
            name.removeprefix(prefix): torch.as_tensor(value)
            for name, value in weights.items()
            if name.startswith(prefix)
        }
    )
    return network.eval().requires_grad_(False)


def _play_round(algorithm: Algorithm, done: int) -> BaseRound:
    """Run one RLlib iteration."""
    started = time.perf_counter()
    result: dict[str, Any] = algorithm.train()  # Any: RLlib's results
    seconds = time.perf_counter() - started
    played = result["env_runners"]
    learned = result.get("learners", {}).get(DEFAULT_MODULE_ID, {})
    steps = int(played["num_env_steps_sampled_lifetime"])
    loss = _number(learned.get("qf_loss"))
    if loss is not None and not loss < float("inf"):
        raise LearnerError(
            f"the base network's loss is {loss} after {steps} steps: try a smaller dqn.lr"
        )
    return BaseRound(
        steps=steps,
        success=_number(played.get("success")),
        loss=loss,
        q_mean=_number(learned.get("qf_mean")),
        steps_per_s=(steps - done) / seconds,
    )


def _number(value: Any) -> float | None:  # Any: a tensor, a number or nothing
    return None if value is None else float(value)


def _log_success(*, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
    """Log whether an episode solved its board, which alone earns a reward (RLlib callback)."""
    is_solved = float(episode.get_rewards(-1)) > 0
    metrics_logger.log_value("success", float(is_solved), window=_SMOOTHED_EPISODES)
