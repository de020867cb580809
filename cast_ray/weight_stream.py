"""Tensors as one stream of bytes, in buckets of bounded size, and what proves such a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import torch
from blake3 import blake3

from cast_ray.weight_format import TensorSpec

DIGEST_BYTES = 32
_CHUNK_WORDS = 2**20
"""Of 32 bits, that one sum of the digest covers."""


def buckets(
    tensors: Mapping[str, torch.Tensor], order: Iterable[TensorSpec], scratch: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Yield the bytes of all tensors behind each other, each time as many as ``scratch`` holds.

    Args:
        tensors: by name, on any device.
        order: in which they are sent.
        scratch: bytes that every bucket is written to, over the one before.
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
    """Return the tensors whose bytes lie behind each other in ``whole``, without a copy."""
    tensors: dict[str, torch.Tensor] = {}
    end = 0
    for spec in order:
        begin, end = end, end + spec.num_bytes
        tensors[spec.name] = whole[begin:end].view(spec.torch_dtype).view(spec.shape)
    return tensors


class StreamDigest:
    """What tells two streams of bytes apart, the same number on GPU and CPU.

    A sum of words times fixed odd random numbers, modulo 2^64, over each chunk; the chunks' sums
    joined in their order by BLAKE3. Integer sums do not depend on the order of summation. One
    changed word of 32 bits shows always, any other fault of a way or a memory but for one in four
    billion: enough beside the probe, which holds every layer to the tensors that came. It is no
    proof against somebody who looks for two streams alike.
    """

    def __init__(self, device: torch.device) -> None:
        self._factors = _factors(device, _CHUNK_WORDS)
        self._sums: list[torch.Tensor] = []
        self._num_bytes = 0

    def update(self, data: torch.Tensor) -> None:
        """Take the next bytes, ``[n]`` uint8; where the stream is cut into updates counts."""
        self._num_bytes += len(data)
        num_whole = len(data) // 4 * 4
        for words in data[:num_whole].view(torch.int32).split(_CHUNK_WORDS):
            self._sums.append((words * self._factors[: len(words)]).sum())
        if num_whole < len(data):
            last = torch.zeros(4, dtype=torch.uint8, device=data.device)
            last[: len(data) - num_whole] = data[num_whole:]
            self._sums.append((last.view(torch.int32) * self._factors[:1]).sum())

    def value(self) -> bytes:
        """Return the digest of all bytes up to now."""
        digest = blake3(self._num_bytes.to_bytes(8, "little"))
        if self._sums:
            digest.update(torch.stack(self._sums).cpu().numpy().tobytes())
        return digest.digest(length=DIGEST_BYTES)


@lru_cache(maxsize=2)
def _factors(device: torch.device, num_words: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(-(2**63), 2**63 - 1, (num_words,), generator=generator)
    return (drawn | 1).to(device)
