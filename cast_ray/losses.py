"""Losses of the policy, one pure function per equation; no Ray, no DeepSpeed, no model.

Letters: ``B`` rows of a micro-batch, ``L`` tokens of its longest row, ``V`` vocabulary. All values
are per token until ``token_mean`` adds them up. What a masked position holds is never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """An objective at every token of a micro-batch, masked ones included; ``[B, L]`` each."""

    loss: Tensor
    is_clipped: Tensor
    """The token gives no gradient."""
    ratio: Tensor
    """Of its probability to that at the start of the step; carries no gradient."""


def token_logprobs(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Return the logprob of each token under the logits that predict it.

    Args:
        logits: ``[..., V]`` any float type; the softmax is taken in float32.
        token_ids: ``[...]`` int64, the token that each row of logits predicts.

    Returns:
        ``[...]`` float32, at most 0.
    """
    flat = functional.cross_entropy(
        logits.float().reshape(-1, logits.shape[-1]), token_ids.reshape(-1), reduction="none"
    )
    return -flat.reshape(token_ids.shape)


def token_entropy(logits: Tensor) -> Tensor:
    """Return ``[...]`` float32 entropy, in nats, of the distributions of ``[..., V]`` logits."""
    log_probabilities = functional.log_softmax(logits.float(), dim=-1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)


def clipped_policy_loss(
    learner_logprobs: Tensor,
    start_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> Tensor:
    """Return the clipped surrogate of every token as a loss (paper, eq:grpo_objective).

    Two departures from the equation, both in its experiments: the upper bound of the ratio has a
    value of its own (DAPO), and where the advantage is negative the loss is at most
    ``-advantages * dual_clip``.

    Args:
        learner_logprobs: ``[B, L]`` under the present weights; the gradient goes through these.
        start_logprobs: ``[B, L]`` of the learner at the start of the step (pi_old).
        advantages: ``[B, L]``.
        clip_low: the ratio counts from ``1 - clip_low``.
        clip_high: the ratio counts up to ``1 + clip_high``.
        dual_clip: bound for negative advantages, above 1; ``inf`` turns it off.

    Returns:
        ``[B, L]`` loss of each token, not yet masked.
    """
    ratio = torch.exp(learner_logprobs - start_logprobs)
    clipped_ratio = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(-advantages * ratio, -advantages * clipped_ratio)
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)


def is_clipped(
    learner_logprobs: Tensor,
    start_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> Tensor:
    """Return ``[B, L]`` bool: this token gives ``clipped_policy_loss`` no gradient.

    Arguments as in ``clipped_policy_loss``. Tokens whose advantage is 0 do not count.
    """
    ratio = torch.exp(learner_logprobs - start_logprobs)
    too_high = torch.where(advantages > 0, ratio > 1 + clip_high, ratio > dual_clip)
    too_low = (advantages < 0) & (ratio < 1 - clip_low)
    return (advantages != 0) & (too_high | too_low)


def token_cross_entropy(learner_logprobs: Tensor) -> Tensor:
    """Return ``[B, L]`` cross-entropy of each token with the text itself: minus its logprob."""
    return -learner_logprobs


def policy_token_loss(
    learner_logprobs: Tensor,
    start_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> TokenLoss:
    """Return ``clipped_policy_loss`` with what is worth knowing about it; arguments as there."""
    given = (learner_logprobs, start_logprobs, advantages)
    bounds = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": dual_clip}
    return TokenLoss(
        loss=clipped_policy_loss(*given, **bounds),
        is_clipped=is_clipped(*given, **bounds),
        ratio=torch.exp(learner_logprobs.detach() - start_logprobs),
    )


def text_token_loss(learner_logprobs: Tensor) -> TokenLoss:
    """Return ``token_cross_entropy`` as a ``TokenLoss``: nothing is clipped, the ratio is 1."""
    return TokenLoss(
        loss=token_cross_entropy(learner_logprobs),
        is_clipped=torch.zeros_like(learner_logprobs, dtype=torch.bool),
        ratio=torch.ones_like(learner_logprobs),
    )


def token_mean(loss: Tensor, mask: Tensor, *, num_tokens: int) -> Tensor:
    """Return this micro-batch's share of the token-mean (paper, eq:grpo_objective).

    The shares of all micro-batches and all ranks add up to the mean over the mini-batch, however
    it was cut, because the denominator is that of the whole mini-batch.

    Args:
        loss: ``[B, L]`` per token.
        mask: ``[B, L]`` bool, tokens in the loss.
        num_tokens: tokens in the loss over the whole mini-batch and all ranks.

    Returns:
        scalar.
    """
    return torch.where(mask, loss, 0.0).sum() / num_tokens
