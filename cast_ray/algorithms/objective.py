"""The objective, assembled from the equations in ``losses``: what one micro-batch adds to the loss.

The algorithms of the paper differ in the values of ``ObjectiveConfig`` and in their advantages:
``cast_ray.config.learning.ALGORITHMS`` has the values, docs/algorithms.md a table.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cast_ray.algorithms import losses
from cast_ray.config.learning import ObjectiveConfig
from cast_ray.errors import CallbackError
from cast_ray.functions import find_function


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCorrection:
    """How each token is corrected for engine and learner disagreeing about it; ``[N]`` each."""

    weights: NDArray[np.float32]
    """1 where nothing is corrected."""
    is_kept: NDArray[np.bool_]
    """False: the token is not in the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInputs:
    """The tokens in the loss of one micro-batch; ``[n]`` each."""

    learner_logprobs: Tensor
    """Under the current weights, with gradient."""
    entropy: Tensor
    """Of the distributions that the tokens are drawn from, with gradient."""
    start_logprobs: Tensor
    """Under the weights at the start of the step (pi_old)."""
    advantages: Tensor
    reference_logprobs: Tensor | None
    """None if the objective has no divergence."""
    rollout_weights: Tensor
    """``RolloutCorrection.weights``."""
    weights: Tensor
    """Share of each token in the mini-batch's mean; 0 if the rollout correction leaves it out.
    Such a token still belongs to its trajectory's ratio."""
    trajectory: Tensor
    """int64; equal numbers belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossShare:
    """What a micro-batch adds to the mini-batch's loss and to its statistics."""

    loss: Tensor
    """Scalar with gradient."""
    num_clipped: Tensor
    """Scalar, number of tokens that the clip leaves without gradient."""
    entropy: Tensor
    """Scalar, sum of the tokens' entropies, in nats."""
    kl: Tensor
    """Scalar, sum of the tokens' estimates of the divergence from the reference."""


def correct_rollout(
    rollout_logprobs: NDArray[np.float32],
    start_logprobs: NDArray[np.float32],
    objective: ObjectiveConfig,
) -> RolloutCorrection:
    """Return how an objective corrects each token.

    Args:
        rollout_logprobs: ``[N]`` of the engine when it drew the tokens.
        start_logprobs: ``[N]`` of the learner at the start of the step.
        objective: with ``rollout_correction`` and its cap.
    """
    num_tokens, cap = len(start_logprobs), objective.rollout_correction_cap
    weights = np.ones(num_tokens, dtype=np.float32)
    is_kept = np.ones(num_tokens, dtype=bool)
    if objective.rollout_correction == "truncate":
        weights = losses.rollout_weights(start_logprobs, rollout_logprobs, cap=cap)
    elif objective.rollout_correction == "mask":
        is_kept = losses.is_within_cap(start_logprobs, rollout_logprobs, cap=cap)
    return RolloutCorrection(weights=weights, is_kept=is_kept)


def mean_weights(
    in_loss: NDArray[np.bool_], offsets: NDArray[np.int64], objective: ObjectiveConfig
) -> NDArray[np.float32]:
    """Return ``[N]`` each token's share in the objective's mean over a mini-batch.

    Args:
        in_loss: ``[N]`` tokens of the mini-batch that are in the loss.
        offsets: ``[R + 1]`` where each trajectory's tokens start.
        objective: with its ``aggregation``.
    """
    if objective.aggregation == "token_mean":
        return losses.token_mean_weights(in_loss)
    return losses.sequence_mean_weights(in_loss, offsets)


def policy_loss(objective: ObjectiveConfig, tokens: TokenInputs) -> LossShare:
    """Return what a micro-batch adds to the loss of an objective (paper, eq:grpo_objective).

    The sum over tokens of weight · (rollout weight · clipped surrogate + kl_coefficient ·
    divergence - entropy_coefficient · entropy).
    """
    if objective.ratio == "token":
        ratio = losses.token_ratio(tokens.learner_logprobs, tokens.start_logprobs)
    else:
        ratio = losses.sequence_ratio(
            tokens.learner_logprobs, tokens.start_logprobs, tokens.trajectory
        )
    bounds = {
        "clip_low": objective.clip_low,
        "clip_high": objective.clip_high,
        "dual_clip": objective.dual_clip or float("inf"),
    }
    if objective.loss:
        per_token = _by_function(objective, ratio, tokens)
        is_clipped = torch.zeros_like(ratio, dtype=torch.bool)  # only the function knows
    else:
        per_token = losses.clipped_surrogate(ratio, tokens.advantages, **bounds)
        is_clipped = losses.is_clipped(ratio.detach(), tokens.advantages, **bounds)
    per_token = per_token * tokens.rollout_weights
    kl = torch.zeros_like(per_token)
    if tokens.reference_logprobs is not None:
        kl = losses.kl_estimate(tokens.learner_logprobs, tokens.reference_logprobs)
        per_token = per_token + objective.kl_coefficient * kl
    if objective.entropy_coefficient:
        per_token = per_token - objective.entropy_coefficient * tokens.entropy
    is_kept = tokens.weights > 0
    return LossShare(
        # Selected, not multiplied by 0: the loss of a token that is left out may be infinite.
        loss=(tokens.weights * per_token)[is_kept].sum(),
        num_clipped=is_clipped[is_kept].sum(),
        entropy=tokens.entropy.detach()[is_kept].sum(),
        kl=kl.detach()[is_kept].sum(),
    )


def _by_function(objective: ObjectiveConfig, ratio: Tensor, tokens: TokenInputs) -> Tensor:
    """Return ``[n]`` the loss of each token by ``objective.loss``.

    Raises:
        CallbackError: it failed, returned another shape or what is not finite, or changed a tensor.
    """
    name = f"objective.loss={objective.loss}"
    given = [ratio, *(getattr(tokens, field.name) for field in fields(tokens))]
    before = [tensor._version for tensor in given if tensor is not None]
    per_token = find_function("objective.loss", objective.loss, 3)(ratio, tokens, objective)
    if not isinstance(per_token, Tensor) or per_token.shape != ratio.shape:
        shape = list(per_token.shape) if isinstance(per_token, Tensor) else type(per_token).__name__
        raise CallbackError(
            f"{name} must return a tensor [{len(ratio)}], one per token; got {shape}"
        )
    if not per_token[tokens.weights > 0].isfinite().all():
        raise CallbackError(f"{name} must return finite numbers; got NaN or infinity")
    if before != [tensor._version for tensor in given if tensor is not None]:
        raise CallbackError(f"{name} must not change the tensors that it is given")
    return per_token


def text_loss(learner_logprobs: Tensor, entropy: Tensor, weights: Tensor) -> LossShare:
    """Return what a micro-batch adds to the cross-entropy of its text; arguments ``[n]``."""
    zero = torch.zeros((), device=weights.device)
    return LossShare(
        loss=(weights * losses.cross_entropy(learner_logprobs)).sum(),
        num_clipped=zero,
        entropy=entropy.detach().sum(),
        kl=zero,
    )
