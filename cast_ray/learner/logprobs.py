"""Logprobs and entropy of tokens over a large vocabulary, without the logits of all of them.

Letters: ``n`` tokens, ``d`` hidden size, ``V`` vocabulary. A trajectory of 16,384 tokens over
151,936 words would have 10 GB of float32 logits, and as much again for their gradient: here the
logits of a chunk of tokens are computed, used and dropped, and recomputed for the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional


def token_logprobs(
    hidden: Tensor,
    head_weight: Tensor,
    head_bias: Tensor | None,
    token_ids: Tensor,
    *,
    tokens_per_chunk: int,
) -> tuple[Tensor, Tensor]:
    """Return each token's logprob and the entropy of the distribution that it was drawn from.

    Both carry gradients to ``hidden``, ``head_weight`` and ``head_bias``.

    Args:
        hidden: ``[n, d]`` what the output head sees where it predicts each token.
        head_weight: ``[V, d]``; logits have its type, the softmax is taken in float32.
        head_bias: ``[V]``, or None.
        token_ids: ``[n]`` int64.
        tokens_per_chunk: rows of logits that exist at the same time.

    Returns:
        ``[n]`` float32 logprobs, at most 0, and ``[n]`` float32 entropies in nats.
    """
    return _TokenLogprobs.apply(hidden, head_weight, head_bias, token_ids, tokens_per_chunk)


class _TokenLogprobs(Function):
    @staticmethod
    def forward(
        ctx: Any,  # Any: autograd's context takes any attribute
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        token_ids: Tensor,
        tokens_per_chunk: int,
    ) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(len(token_ids), dtype=torch.float32, device=hidden.device)
        entropy = torch.empty_like(logprobs)
        for start in range(0, len(token_ids), tokens_per_chunk):
            chunk = slice(start, start + tokens_per_chunk)
            log_p = _log_probabilities(hidden[chunk], weight, bias)
            logprobs[chunk] = log_p.gather(1, token_ids[chunk, None]).squeeze(1)
            entropy[chunk] = -(log_p.exp().mul_(log_p)).sum(dim=1)
        ctx.save_for_backward(hidden, weight, bias, token_ids, entropy)
        ctx.tokens_per_chunk = tokens_per_chunk
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        of_logprobs, of_entropy = gradients
        hidden, weight, bias, token_ids, entropy = ctx.saved_tensors
        of_logprobs = torch.zeros_like(entropy) if of_logprobs is None else of_logprobs
        needs_hidden, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        of_hidden = torch.empty_like(hidden) if needs_hidden else None
        # Summed in float32: the chunks' shares of a row of the vocabulary can be of any size.
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        of_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_bias else None
        for start in range(0, len(token_ids), ctx.tokens_per_chunk):
            chunk = slice(start, start + ctx.tokens_per_chunk)
            of_logits = _of_logits(
                _log_probabilities(hidden[chunk], weight, bias),
                token_ids[chunk, None],
                entropy[chunk, None],
                of_logprobs[chunk, None],
                None if of_entropy is None else of_entropy[chunk, None],
            )
            if of_bias is not None:
                of_bias += of_logits.sum(dim=0)
            of_logits = of_logits.to(weight.dtype)
            if of_hidden is not None:
                of_hidden[chunk] = of_logits @ weight
            if of_weight is not None:
                of_weight += of_logits.mT @ hidden[chunk]
        return (
            of_hidden,
            None if of_weight is None else of_weight.to(weight.dtype),
            None if of_bias is None else of_bias.to(bias.dtype),
            None,
            None,
        )


def _of_logits(
    log_p: Tensor,
    token_ids: Tensor,
    entropy: Tensor,
    of_logprobs: Tensor,
    of_entropy: Tensor | None,
) -> Tensor:
    """Return the gradient of a chunk's logits, in the memory of its ``log_p``; the rest ``[n, 1]``.

    d logprob_y / d logit_k = [k = y] - p_k;  d H / d logit_k = -p_k (log p_k + H).
    """
    if of_entropy is None:
        gradient = log_p.exp_().mul_(-of_logprobs)
    else:
        p = log_p.exp()
        gradient = log_p.add_(entropy).mul_(-of_entropy).sub_(of_logprobs).mul_(p)
    return gradient.scatter_add_(1, token_ids, of_logprobs)


def _log_probabilities(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.log_softmax(functional.linear(hidden, weight, bias).float(), dim=1)
