"""RLlib's replay of episodes, with the n-step return that DQN's equation means.

Neither of RLlib's two buffers (2.60) can be used as it is where episodes are short:

- ``EpisodeReplayBuffer`` cuts the last transitions of an episode to fewer than n rewards. It
  still lets the loss discount what follows by gamma^n, and it forgets that the episode ended: of
  three transitions that lead to a win, two go on from the board that is won. Values then grow past
  every return there is: 2 to 3.5 instead of at most 0.99, after 25,000 steps.
- ``PrioritizedEpisodeReplayBuffer`` leaves out all transitions with fewer than n steps to come:
  the move that wins would never be learned from.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

import numpy as np
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer


class _KnownByName(ABCMeta):
    """Lets RLlib ask ``"EpisodeReplayBuffer" in type``, which it asks of classes too."""

    def __contains__(cls, text: str) -> bool:
        return text in cls.__name__


class NStepEpisodeReplayBuffer(EpisodeReplayBuffer, metaclass=_KnownByName):
    """Uniform replay, seeded, where each transition says how many rewards it has added up."""

    def __init__(self, *, seed: int, **kwargs: Any) -> None:
        """Take a seed beside RLlib's own arguments."""
        super().__init__(**kwargs)
        self.rng = np.random.default_rng(seed)

    # Any: RLlib's method returns one of five types; of episodes, as DQN asks, it is this one.
    def sample(self, *args: Any, n_step: int, **kwargs: Any) -> Any:
        """Return transitions as RLlib does, the last of an episode as they were.

        Each is an episode of one step: o_t, a_t, the rewards of up to ``n_step`` steps discounted
        and summed, the observation after them. ``n_step`` among its model outputs is how many
        they are, and it is terminated or truncated if the episode ended with them.
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
