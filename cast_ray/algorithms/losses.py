"""The terms of the loss at every token, one pure function per equation; no Ray, no DeepSpeed.

Letters: ``n`` tokens in the loss, of complete trajectories, in any order. Nothing here knows
padding, masks or micro-batches: tokens outside the loss are not given. What a loss is divided by is
a weight of each token (``token_mean_weights``, ``sequence_mean_weights``), computed over the whole
mini-batch, so that the shares of micro-batches and ranks add up to the same sum.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LARGEST_LOG_RATIO = 10.0
"""Of a sequence: beyond it the ratio neither grows nor has a gradient."""

_LARGEST_TOKEN_LOG_RATIO = 20.0
"""Far beyond every clip: an infinite ratio would make even a clipped token's gradient NaN, and one
infinite divergence would cost the whole update."""


def token_ratio(learner_logprobs: Tensor, start_logprobs: Tensor) -> Tensor:
    """Return ``[n]`` rho_t, each token's probability over that at the start of the step.

    At most e^20, where it has no gradient.

    Args:
        learner_logprobs: ``[n]`` under the current weights; the gradient goes through these.
        start_logprobs: ``[n]`` of the learner at the start of the step (pi_old).
    """
    return torch.exp((learner_logprobs - start_logprobs).clamp(max=_LARGEST_TOKEN_LOG_RATIO))


def sequence_ratio(learner_logprobs: Tensor, start_logprobs: Tensor, trajectory: Tensor) -> Tensor:
    """Return ``[n]`` GSPO's ratio of each token's trajectory, exp of its mean log-ratio.

    Every token has its trajectory's value; the gradient goes through its own logprob alone
    (s · pi / stop-gradient(pi)).

    Args:
        learner_logprobs: ``[n]`` as in ``token_ratio``.
        start_logprobs: ``[n]`` as there.
        trajectory: ``[n]`` int64, from 0; equal numbers belong together.
    """
    num_trajectories = int(trajectory.max()) + 1 if len(trajectory) else 0
    log_ratio = (learner_logprobs - start_logprobs).detach()
    sums = log_ratio.new_zeros(num_trajectories).index_add(0, trajectory, log_ratio)
    counts = torch.bincount(trajectory, minlength=num_trajectories)
    mean = (sums / counts.clamp(min=1))[trajectory]
    own = learner_logprobs - learner_logprobs.detach()
    return torch.exp((mean + own).clamp(max=_LARGEST_LOG_RATIO))


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float
) -> Tensor:
    """Return the clipped surrogate of every token as a loss (paper, eq:grpo_objective).

    Two departures from the equation, both in the paper's experiments: the upper bound of the ratio
    differs from the lower one (DAPO), and where the advantage is negative the loss is at most
    ``-advantages * dual_clip``.

    Args:
        ratio: ``[n]`` of ``token_ratio`` or ``sequence_ratio``.
        advantages: ``[n]``.
        clip_low: the ratio counts from ``1 - clip_low``.
        clip_high: the ratio counts up to ``1 + clip_high``.
        dual_clip: bound for negative advantages, above 1; ``inf`` turns it off.

    Returns:
        ``[n]`` loss of each token.
    """
    clipped_ratio = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(-advantages * ratio, -advantages * clipped_ratio)
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)


def is_clipped(
    ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float
) -> Tensor:
    """Return ``[n]`` bool: ``clipped_surrogate`` gives this token no gradient.

    Arguments as there. Tokens of advantage 0 do not count as clipped.
    """
    too_high = torch.where(advantages > 0, ratio > 1 + clip_high, ratio > dual_clip)
    too_low = (advantages < 0) & (ratio < 1 - clip_low)
    return (advantages != 0) & (too_high | too_low)


def kl_estimate(learner_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Return ``[n]`` the low-variance estimate of KL(policy || reference) at each token.

    exp(q - p) - (q - p) - 1 with q the reference's and p the learner's logprob: at least 0, and
    unbiased over tokens that the learner drew. The gradient goes through p. Beyond q - p = 20 it
    no longer grows.
    """
    difference = (reference_logprobs - learner_logprobs).clamp(max=_LARGEST_TOKEN_LOG_RATIO)
    return torch.exp(difference) - difference - 1


def cross_entropy(learner_logprobs: Tensor) -> Tensor:
    """Return ``[n]`` cross-entropy of each token with the text itself: minus its logprob."""
    return -learner_logprobs


def rollout_weights(
    start_logprobs: NDArray[np.float32], rollout_logprobs: NDArray[np.float32], *, cap: float
) -> NDArray[np.float32]:
    """Return ``[n]`` truncated importance weights, min(pi_old / pi_rollout, cap).

    Args:
        start_logprobs: ``[n]`` of the learner at the start of the step.
        rollout_logprobs: ``[n]`` of the engine when it drew the tokens.
        cap: at least 1.
    """
    return np.minimum(np.exp(start_logprobs - rollout_logprobs), np.float32(cap))


def is_within_cap(
    start_logprobs: NDArray[np.float32], rollout_logprobs: NDArray[np.float32], *, cap: float
) -> NDArray[np.bool_]:
    """Return ``[n]`` whether pi_old / pi_rollout lies between 1 / cap and cap; arguments as above.

    With ``rollout_correction=mask`` the other tokens are left out of the loss and of its
    denominator. A ratio that is NaN is not within the cap.
    """
    return np.abs(start_logprobs - rollout_logprobs) <= np.log(cap)


def token_mean_weights(in_loss: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return ``[N]`` weights of the token-mean (paper, tab:hp_algo): 1 over their number.

    Args:
        in_loss: ``[N]`` every token of the mini-batch, of all ranks; at least one is in the loss.
    """
    return (in_loss / in_loss.sum()).astype(np.float32)


def sequence_mean_weights(
    in_loss: NDArray[np.bool_], offsets: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return ``[N]`` weights of the seq-mean-token-mean (paper, tab:hp_algo).

    The mean over each trajectory's tokens in the loss, then over the trajectories that have any.

    Args:
        in_loss: ``[N]`` as in ``token_mean_weights``.
        offsets: ``[R + 1]`` where each trajectory's tokens start.
    """
    counts = np.array([in_loss[a:b].sum() for a, b in itertools.pairwise(offsets)])
    per_token = np.repeat(np.maximum(counts, 1), np.diff(offsets))
    return (in_loss / (per_token * (counts > 0).sum())).astype(np.float32)
