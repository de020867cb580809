"""Attention over packed sequences: no padding, and none across their boundaries.

Registered with transformers as the attention implementation ``ATTENTION``; a model loaded with it
takes ``sequence_lengths`` in addition to its ``[1, N]`` token ids. Letters: ``N`` tokens of all
sequences, ``H`` heads, ``K`` heads of keys and values, ``D`` size of a head, ``W`` window.

In half precision on a GPU, one kernel takes all sequences. Elsewhere full causal attention runs
sequence by sequence, and a window runs in blocks of its size over the packed row, where each query
block sees its own keys and those of the previous block: a masked kernel over complete sequences
would compute what the window discards.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedConfig
from transformers.masking_utils import AttentionMaskInterface

from cast_ray.errors import ModelError

ATTENTION = "cast_ray_packed"

_BLOCK = 256
"""Queries that see the same keys at most: later keys of their block are computed for nothing."""
_WITHOUT_EFFECT = {"dropout": 0.0, "is_causal": True}
"""Options at the only values that packed attention supports."""
_NOT_OF_ATTENTION = frozenset(
    {
        "cache_position",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "use_cache",
    }
)
"""Options that models pass to all layers, without a meaning for attention."""


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequence_lengths: tuple[int, ...],
    *,
    window: int | None,
    scale: float | None = None,
) -> Tensor:
    """Return causal attention of each packed sequence over itself.

    Args:
        query: ``[1, H, N, D]``.
        key: ``[1, K, N, D]``; K divides H.
        value: ``[1, K, N, D]``.
        sequence_lengths: tokens of each sequence; they add up to N.
        window: tokens that a token looks back on, itself included; None = all before it.
        scale: of the scores; None = D^-0.5.

    Returns:
        ``[1, H, N, D]``.
    """
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _in_one_kernel(query, key, value, sequence_lengths, window=window, scale=scale)
    if window is not None and window < max(sequence_lengths):
        return _windowed(query, key, value, sequence_lengths, window=window, scale=scale)
    in_blocks = query.device.type == "cpu" and query.dtype == torch.bfloat16
    of_one = _in_blocks if in_blocks else _fused
    tensors = (tensor.split(sequence_lengths, dim=2) for tensor in (query, key, value))
    return torch.cat([of_one(*each, scale=scale) for each in zip(*tensors, strict=True)], dim=2)


def _in_one_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequence_lengths: tuple[int, ...],
    *,
    window: int | None,
    scale: float | None,
) -> Tensor:
    ends, longest = _ends(sequence_lengths, query.device), max(sequence_lengths)
    attended = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        ends,
        ends,
        longest,
        longest,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=key.shape[1] != query.shape[1],
    )
    assert isinstance(attended, Tensor)
    return attended.transpose(0, 1)[None]


@functools.lru_cache(maxsize=2)  # every layer of a pass asks for the same
def _ends(sequence_lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ``[sequences + 1]`` int32: 0, and where each sequence ends."""
    return torch.tensor([0, *itertools.accumulate(sequence_lengths)], dtype=torch.int32).to(device)


def _fused(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None) -> Tensor:
    is_grouped = key.shape[1] != query.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=is_grouped
    )


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None) -> Tensor:
    """Return what ``_fused`` does, in a third of its time with bfloat16 on CPU (700 tokens)."""
    queries = query[0].unflatten(0, (key.shape[1], -1))  # [K, H / K, n, D]
    keys, values = key[0, :, None].mT, value[0, :, None]
    blocks = []
    for start in range(0, query.shape[2], _BLOCK):
        block = queries[:, :, start : start + _BLOCK]
        end = start + block.shape[2]
        scores = block * (scale or query.shape[3] ** -0.5) @ keys[..., :end]
        later = scores.new_full(scores.shape[2:], -torch.inf).triu(start + 1)
        blocks.append((scores + later).softmax(dim=3) @ values[..., :end, :])
    return torch.cat(blocks, dim=2).flatten(0, 1)[None]


def _windowed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequence_lengths: tuple[int, ...],
    *,
    window: int,
    scale: float | None,
) -> Tensor:
    num_tokens = query.shape[2]
    num_blocks = -(-num_tokens // window)
    # Rounded up to full blocks, with one empty block in front of the first.
    queries = _blocks(query, 0, num_blocks, window)
    keys = _with_block_before(_blocks(key, window, num_blocks + 1, window))
    values = _with_block_before(_blocks(value, window, num_blocks + 1, window))
    attended = functional.scaled_dot_product_attention(
        queries,
        _repeated(keys, query.shape[1]),
        _repeated(values, query.shape[1]),
        attn_mask=_block_mask(sequence_lengths, window, query.device),
        scale=scale,
    )
    joined = attended.transpose(0, 1).reshape(1, query.shape[1], -1, query.shape[3])
    return joined[:, :, :num_tokens]


@functools.lru_cache(maxsize=2)  # every layer of a pass asks for the same
def _block_mask(sequence_lengths: tuple[int, ...], window: int, device: torch.device) -> Tensor:
    """Return ``[num_blocks, 1, W, 2 W]`` bool: the query sees the key."""
    lengths = torch.tensor(sequence_lengths, device=device)
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
    num_blocks = -(-len(sequence) // window)
    padded = functional.pad(sequence, (window, num_blocks * window - len(sequence)), value=-1)
    of_query = padded[window:].view(num_blocks, window, 1)
    of_key = torch.cat([padded[:-window].view(num_blocks, 1, window), of_query.mT], dim=2)
    query = torch.arange(window, device=device).view(window, 1)
    back = query - torch.arange(-window, window, device=device)
    # Every query sees itself, also beyond the end: a row without any key would be NaN.
    return ((of_query == of_key) & (back >= 0) & (back < window))[:, None]


def _blocks(tensor: Tensor, in_front: int, num_blocks: int, window: int) -> Tensor:
    """Return ``[num_blocks, heads, W, D]`` of a ``[1, heads, N, D]`` tensor, zeros around it."""
    behind = num_blocks * window - in_front - tensor.shape[2]
    padded = functional.pad(tensor[0], (0, 0, in_front, behind))
    return padded.view(tensor.shape[1], num_blocks, window, -1).transpose(0, 1)


def _with_block_before(blocks: Tensor) -> Tensor:
    """Return each block but the first after the previous one, ``[num_blocks - 1, …, 2 W, D]``."""
    return torch.cat([blocks[:-1], blocks[1:]], dim=2)


def _repeated(tensor: Tensor, num_heads: int) -> Tensor:
    # With a mask, the fused kernels do not support grouped heads.
    return tensor.repeat_interleave(num_heads // tensor.shape[1], dim=1)


def _for_transformers(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    sequence_lengths: tuple[int, ...],
    **options: Any,  # Any: what else a model passes to its attention
) -> tuple[Tensor, None]:
    _refuse_options(module, options)
    attended = packed_attention(
        query, key, value, sequence_lengths, window=sliding_window, scale=scaling
    )
    return attended.transpose(1, 2).contiguous(), None


def _refuse_options(module: torch.nn.Module, options: dict[str, Any]) -> None:
    """Raise ModelError if a model needs more of its attention than causal softmax."""
    is_causal = getattr(module, "is_causal", True)  # a module may leave it to its arguments
    for name, wanted in {"is_causal": is_causal, **options}.items():
        if wanted is None or name in _NOT_OF_ATTENTION:
            continue
        if name not in _WITHOUT_EFFECT or wanted != _WITHOUT_EFFECT[name]:
            raise ModelError(
                f"{type(module).__name__} needs attention with {name}, which packed attention does "
                "not support: use a model without it"
            )


def _no_mask(*, config: PreTrainedConfig, local_size: int | None = None, **_others: Any) -> None:
    """Return no mask: attention gets boundaries as lengths, and each layer its window.

    Any: transformers' own arguments.

    Raises:
        ModelError: the model attends in chunks, which only the mask would say.
    """
    if local_size is not None and local_size != getattr(config, "sliding_window", None):
        raise ModelError(
            f"{config.model_type} attends in chunks of {local_size} tokens, which packed attention "
            "does not support: use a model with full or sliding-window attention"
        )


AttentionInterface.register(ATTENTION, _for_transformers)
AttentionMaskInterface.register(ATTENTION, _no_mask)
