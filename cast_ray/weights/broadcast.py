"""Broadcasts weights from the learner to the workers of all engines, by one collective.

The body of the weights file travels in buckets of bounded size, then the digest of what was sent,
then every member's verdict. So no member accepts weights that another refused, and an interrupted
broadcast has changed nothing anywhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache

import torch
from blake3 import blake3

from cast_ray.errors import TransferBroken, WeightSyncError
from cast_ray.weights.device import buckets, cut
from cast_ray.weights.file import TensorSpec, in_file_order
from cast_ray.weights.group import SENDER, BroadcastGroup, Meeting, of_meeting, open_store
from cast_ray.weights.manifest import WeightManifest, read_weights

BUCKET_BYTES = 256 * 2**20
"""Memory of the sender's device for a broadcast, besides its model."""
GIVE_UP_SHARE = 0.5
"""Share of an update's time-out after which members abandon an incomplete broadcast, so that an
engine can report it and resume with its old weights before it counts as stalled."""
DIGEST_BYTES = 32
_CHUNK_WORDS = 2**20
"""Words of 32 bits in one sum of the digest."""


class StreamDigest:
    """The digest of a stream of bytes, the same on GPU and CPU.

    A sum of words times fixed odd random numbers, modulo 2^64, over each chunk; BLAKE3 of the
    chunks' sums in order. Integer sums do not depend on the order of summation. A single changed
    word of 32 bits always shows, any other fault of a network or memory with probability 1 - 2^-32:
    enough, since every layer is also compared with the tensors that arrived. It is not secure
    against deliberate collisions.
    """

    def __init__(self, device: torch.device) -> None:
        self._factors = _factors(device, _CHUNK_WORDS)
        self._sums: list[torch.Tensor] = []
        self._num_bytes = 0

    def update(self, data: torch.Tensor) -> None:
        """Add the next bytes, ``[n]`` uint8; the cuts between updates change the digest."""
        self._num_bytes += len(data)
        num_whole = len(data) // 4 * 4
        for words in data[:num_whole].view(torch.int32).split(_CHUNK_WORDS):
            self._sums.append((words * self._factors[: len(words)]).sum())
        if num_whole < len(data):
            last = torch.zeros(4, dtype=torch.uint8, device=data.device)
            last[: len(data) - num_whole] = data[num_whole:]
            self._sums.append((last.view(torch.int32) * self._factors[:1]).sum())

    def value(self) -> bytes:
        """Return the digest of all bytes so far."""
        digest = blake3(self._num_bytes.to_bytes(8, "little"))
        if self._sums:
            digest.update(torch.stack(self._sums).cpu().numpy().tobytes())
        return digest.digest(length=DIGEST_BYTES)


@lru_cache(maxsize=2)
def _factors(device: torch.device, num_words: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(-(2**63), 2**63 - 1, (num_words,), generator=generator)
    return (drawn | 1).to(device)


class WeightSender:
    """The learner's end of one broadcast: a version, and a store where its receivers meet."""

    def __init__(
        self,
        manifest: WeightManifest,
        *,
        address: str,
        world_size: int,
        device: torch.device,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Verify the file, before receivers wait for it, and open the store.

        Args:
            manifest: of a file on this host.
            address: of this host, by which the others reach it.
            world_size: this process and all receivers.
            device: from which the tensors are sent.
            bucket_bytes: memory used there; a multiple of 8.

        Raises:
            WeightSyncError: the file is not what was published.
        """
        self._manifest, self._device = manifest, device
        self._tensors = read_weights(manifest)
        self._store = open_store(address)
        self.meeting = Meeting(
            address=address,
            port=self._store.port,
            token=uuid.uuid4().hex,
            world_size=world_size,
            device=device.type,
            bucket_bytes=bucket_bytes,
        )

    def send(self, *, timeout_s: float) -> None:
        """Send to all receivers, once; return when all have verified what arrived.

        Raises:
            TransferBroken: a receiver did not join in time, or is gone.
            WeightSyncError: what arrived at a receiver is not what was sent.
        """
        group = BroadcastGroup(
            of_meeting(self._store, self.meeting),
            rank=SENDER,
            world_size=self.meeting.world_size,
            device=self._device,
            timeout_s=timeout_s,
        )
        with group:
            send_tensors(
                group,
                self._tensors,
                self._manifest.tensors,
                bucket_bytes=self.meeting.bucket_bytes,
            )


def send_tensors(
    group: BroadcastGroup,
    tensors: Mapping[str, torch.Tensor],
    specs: Iterable[TensorSpec],
    *,
    bucket_bytes: int,
) -> None:
    """Send tensors from any device and their digest, and collect the receivers' verdicts.

    Raises:
        TransferBroken: a receiver is gone, or late.
        WeightSyncError: what arrived at a receiver is not what was sent.
    """
    order = in_file_order(specs)
    scratch_bytes = min(bucket_bytes, sum(spec.num_bytes for spec in order))
    scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device=group.device)
    digest = StreamDigest(group.device)
    for index, bucket in enumerate(buckets(tensors, order, scratch)):
        group.broadcast(bucket, f"bucket {index}")
        digest.update(bucket)
    group.broadcast(_as_tensor(digest.value(), group.device), "its digest")
    if not group.all_right(True):
        raise WeightSyncError("an engine's worker reports that what arrived is not what was sent")


def receive_tensors(
    group: BroadcastGroup, specs: Iterable[TensorSpec], *, bucket_bytes: int, version: int
) -> dict[str, torch.Tensor]:
    """Return the verified tensors that ``send_tensors`` sends, on the group's device.

    They share one buffer of the model's size: the check of the layers needs all of it.

    Raises:
        TransferBroken: a member is gone or late, or another one refused what arrived there.
        WeightSyncError: what arrived here is not what was sent.
    """
    order = in_file_order(specs)
    num_bytes = sum(spec.num_bytes for spec in order)
    whole = torch.empty(num_bytes, dtype=torch.uint8, device=group.device)
    digest = StreamDigest(group.device)
    for index, begin in enumerate(range(0, num_bytes, bucket_bytes)):
        bucket = whole[begin : begin + bucket_bytes]
        group.broadcast(bucket, f"bucket {index}")
        digest.update(bucket)
    sent = _as_tensor(bytes(DIGEST_BYTES), group.device)
    group.broadcast(sent, "its digest")
    if bytes(sent.tolist()) != digest.value():
        with suppress(TransferBroken):  # the error is known, whether or not the others hear of it
            group.all_right(False)
        raise WeightSyncError(
            f"the weights of version {version} that arrived are not those that were sent; check "
            f"the network between the hosts"
        )
    if not group.all_right(True):
        raise TransferBroken(
            f"another worker refused the weights of version {version} that it received; those of "
            f"this one are as before"
        )
    return cut(whole, order)


def _as_tensor(data: bytes, device: torch.device) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
