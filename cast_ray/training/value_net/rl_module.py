"""The value network as an RLlib module that only chooses legal actions.

RLlib's DQN learner computes the loss from what ``_forward_train`` returns. RLlib's own module does
not work here: its exploration draws among the actions whose Q-value is not 0, so it can draw a
masked action (the smallest float) and never draws a legal action of value 0.

Letters: ``B`` rows of a batch, ``A`` actions.
"""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.dqn.dqn_learner import (
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_TARGET_NEXT_PREDS,
)
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor

from solver_actors.value_net.network import QNetwork, QNetworkShape, masked_q

Batch = dict[str, Any]  # Any: RLlib's batches are nested dictionaries of tensors


class MaskedQModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """Epsilon-greedy play over legal actions, and Q-values for the Double DQN loss.

    ``model_config`` holds ``shape`` (``QNetworkShape``); RLlib adds ``epsilon``. Observations have
    ``cells`` ``[B, rows, cols]`` and ``action_mask`` ``[B, A]``.
    """

    network: QNetwork
    """The online network."""
    _target_network: QNetwork

    def setup(self) -> None:
        """Create the network; RLlib calls this."""
        shape = self.model_config["shape"]
        assert isinstance(shape, QNetworkShape)
        self.network = QNetwork(shape)
        self.epsilon_schedule = Scheduler(
            fixed_value_or_schedule=self.model_config["epsilon"], framework="torch"
        )

    def compute_q_values(self, batch: Batch) -> Batch:
        """Return masked ``[B, A]`` Q-values of the online network under ``QF_PREDS``."""
        return {QF_PREDS: _legal_q(self.network, batch[Columns.OBS])}

    def forward_target(self, batch: Batch) -> Batch:
        """Return masked ``[B, A]`` Q-values of the target network under ``QF_PREDS``."""
        return {QF_PREDS: _legal_q(self._target_network, batch[Columns.OBS])}

    def make_target_networks(self) -> None:
        """Create a target network equal to the online one."""
        target = make_target_network(self.network)
        assert isinstance(target, QNetwork)
        self._target_network = target

    def get_target_network_pairs(self) -> list[tuple[QNetwork, QNetwork]]:
        """Return the online network and the target network that follows it."""
        return [(self.network, self._target_network)]

    def get_non_inference_attributes(self) -> list[str]:
        """Return the attributes that env runners do not need."""
        return ["_target_network"]

    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        with torch.no_grad():
            return {Columns.ACTIONS: self.compute_q_values(batch)[QF_PREDS].argmax(dim=-1)}

    def _forward_exploration(self, batch: Batch, *, t: int, **kwargs: Any) -> Batch:
        """Return ``[B]`` actions: with probability epsilon a random legal one, else the best.

        Args:
            batch: observations.
            t: environment steps so far, which epsilon follows.
        """
        self.epsilon_schedule.update(t)
        epsilon = float(self.epsilon_schedule.get_current_value())
        with torch.no_grad():
            q = self.compute_q_values(batch)[QF_PREDS]
        return {
            Columns.ACTIONS: epsilon_greedy(q, batch[Columns.OBS]["action_mask"], epsilon=epsilon)
        }

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        """Return the ``[B, A]`` Q-values for RLlib's loss.

        Those of the observation are not masked, because the played action was legal. Those of the
        next observation are -inf for illegal actions; if no action is legal, the loss reads -inf
        and treats it as 0 before it is multiplied with anything.
        """
        next_observations = batch[Columns.NEXT_OBS]
        with torch.no_grad():  # the loss uses both for its target alone
            best_next = _legal_q(self.network, next_observations)
            value_next = _legal_q(self._target_network, next_observations)
        return {
            QF_PREDS: self.network(batch[Columns.OBS]["cells"]),
            QF_NEXT_PREDS: best_next,
            QF_TARGET_NEXT_PREDS: value_next,
        }


def epsilon_greedy(q: Tensor, mask: Tensor, *, epsilon: float) -> Tensor:
    """Return ``[B]`` actions, legal if any action is.

    Args:
        q: ``[B, A]`` Q-values; those of illegal actions do not matter.
        mask: ``[B, A]``, 0 = illegal. If all are illegal, the action is 0: RLlib asks once more for
            the last observation of an episode and discards the answer.
        epsilon: chance of a uniform draw among the legal actions.
    """
    is_legal = (mask != 0).float()
    weights = torch.where(is_legal.any(dim=-1, keepdim=True), is_legal, torch.ones_like(is_legal))
    drawn = torch.multinomial(weights, num_samples=1).squeeze(dim=-1)
    best = masked_q(q, mask).argmax(dim=-1)
    chosen = torch.where(torch.rand(len(q), device=q.device) < epsilon, drawn, best)
    return torch.where(is_legal.any(dim=-1), chosen, torch.zeros_like(chosen))


def _legal_q(network: QNetwork, observations: Batch) -> Tensor:
    return masked_q(network(observations["cells"]), observations["action_mask"])
