"""Logprobs and entropy of tokens over a large vocabulary, without the logits of all of them.

Letters: ``n`` tokens, ``d`` hidden size, ``V`` vocabulary. A trajectory of 16,384 tokens over
151,936 words would have 10 GB of float32 logits, and as much again for their gradient: here the
logits of some tokens at a time are computed, used and dropped, and once more for the gradient.
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
        ctx: Any,  # Any: autograd's context takes whatever is put on it
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
            entropy[chunk] = -(log_p.exp() * log_p).sum(dim=1)
        ctx.save_for_backward(hidden, weight, bias, token_ids, entropy)
        ctx.tokens_per_chunk = tokens_per_chunk
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_logprobs, of_entropy = gradients
        hidden, weight, bias, token_ids, entropy = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden)
        # Added up in float32: the chunks' shares of a row of the vocabulary can be of any size.
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
        of_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for start in range(0, len(token_ids), ctx.tokens_per_chunk):
            chunk = slice(start, start + ctx.tokens_per_chunk)
            log_p = _log_probabilities(hidden[chunk], weight, bias)
            p = log_p.exp()
            # d logprob_y / d logit_k = [k = y] - p_k;  d H / d logit_k = -p_k (log p_k + H).
            of_logits = (log_p + entropy[chunk, None]) * -of_entropy[chunk, None]
            of_logits = (of_logits - of_logprobs[chunk, None]) * p
            of_logits.scatter_add_(1, token_ids[chunk, None], of_logprobs[chunk, None])
            if of_bias is not None:
                of_bias += of_logits.sum(dim=0)
            of_logits = of_logits.to(weight.dtype)
            of_hidden[chunk] = of_logits @ weight
            of_weight += of_logits.mT @ hidden[chunk]
        return (
            of_hidden,
            of_weight.to(weight.dtype),
            None if of_bias is None or bias is None else of_bias.to(bias.dtype),
            None,
            None,
        )


def _log_probabilities(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.log_softmax(functional.linear(hidden, weight, bias).float(), dim=1)
