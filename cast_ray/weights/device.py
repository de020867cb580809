"""Moves tensors between a host's memory and a device as one stretch of bytes.

A model has hundreds of tensors; copied one by one from pageable memory, each would wait for the
device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from cast_ray.weights.file import TensorSpec, in_file_order

STAGING_BYTES = 64 * 2**20
"""Of pinned memory, through which tensors travel to a GPU."""


def on_device(
    tensors: Mapping[str, torch.Tensor], specs: Iterable[TensorSpec], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return a host's tensors on a device: as they are on CPU, else as parts of one buffer there.

    Args:
        tensors: by name, in this host's memory.
        specs: of all of them.
        device: where they are needed.
    """
    if device.type == "cpu":
        return dict(tensors)
    order = in_file_order(specs)
    num_bytes = sum(spec.num_bytes for spec in order)
    whole = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    staging = torch.empty(min(STAGING_BYTES, num_bytes), dtype=torch.uint8, pin_memory=True)
    end = 0
    for bucket in buckets(tensors, order, staging):
        # Blocking: the next bucket overwrites the same memory.
        whole.narrow(0, end, len(bucket)).copy_(bucket)
        end += len(bucket)
    return cut(whole, order)


def buckets(
    tensors: Mapping[str, torch.Tensor], order: Iterable[TensorSpec], scratch: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Yield the concatenated bytes of all tensors, each time as many as ``scratch`` holds.

    Args:
        tensors: by name, on any device.
        order: in which they are sent.
        scratch: memory of each bucket, overwritten by the next one.
    """
    filled = 0
    for spec in order:
        left = tensors[spec.name].detach().contiguous().view(-1).view(torch.uint8)
        while len(left):
            taken = left[: len(scratch) - filled]
            scratch[filled : filled + len(taken)].copy_(taken)
            filled += len(taken)
            left = left[len(taken) :]
            if filled == len(scratch):
                yield scratch
                filled = 0
    if filled:
        yield scratch[:filled]


def cut(whole: torch.Tensor, order: Iterable[TensorSpec]) -> dict[str, torch.Tensor]:
    """Return the tensors whose concatenated bytes are ``whole``, without a copy."""
    tensors: dict[str, torch.Tensor] = {}
    end = 0
    for spec in order:
        begin, end = end, end + spec.num_bytes
        tensors[spec.name] = whole[begin:end].view(spec.torch_dtype).view(spec.shape)
    return tensors
