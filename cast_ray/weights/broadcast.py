"""Broadcasts weights from the learner to the workers of all engines, by one collective.

The body of the weights file travels in buckets of bounded size from host memory to host memory,
then the digest of what was sent, then every member's verdict. So no member accepts weights that
another refused, and an interrupted broadcast has changed nothing anywhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress

import torch
from blake3 import blake3

from cast_ray.errors import TransferBroken, WeightSyncError
from cast_ray.weights.device import buckets, cut
from cast_ray.weights.file import TensorSpec, in_file_order, thread_count
from cast_ray.weights.group import SENDER, BroadcastGroup, Meeting, of_meeting, open_store
from cast_ray.weights.manifest import WeightManifest, read_weights

BUCKET_BYTES = 256 * 2**20
"""Memory of the sender for a broadcast, besides the file."""
GIVE_UP_SHARE = 0.5
"""Share of an update's time-out after which members abandon an incomplete broadcast, so that an
engine can report it and resume with its old weights before it counts as stalled."""
DIGEST_BYTES = 32


class WeightSender:
    """The learner's end of one broadcast: a version, and a store where its receivers meet."""

    def __init__(
        self,
        manifest: WeightManifest,
        *,
        address: str,
        world_size: int,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Verify the file, before receivers wait for it, and open the store.

        Args:
            manifest: of a file on this host.
            address: of this host, by which the others reach it.
            world_size: this process and all receivers.
            bucket_bytes: memory used there; a multiple of 8.

        Raises:
            WeightSyncError: the file is not what was published.
        """
        self._manifest = manifest
        self._tensors = read_weights(manifest)
        self._store = open_store(address)
        self.meeting = Meeting(
            address=address,
            port=self._store.port,
            token=uuid.uuid4().hex,
            world_size=world_size,
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
    """Send a host's tensors and their digest, and collect the receivers' verdicts.

    Raises:
        TransferBroken: a receiver is gone, or late.
        WeightSyncError: what arrived at a receiver is not what was sent.
    """
    order = in_file_order(specs)
    scratch_bytes = min(bucket_bytes, sum(spec.num_bytes for spec in order))
    scratch = torch.empty(scratch_bytes, dtype=torch.uint8)
    digest = _digest()
    for index, bucket in enumerate(buckets(tensors, order, scratch)):
        group.broadcast(bucket, f"bucket {index}")
        digest.update(bucket.numpy().data)
    group.broadcast(_as_tensor(digest.digest()), "its digest")
    if not group.all_right(True):
        raise WeightSyncError("an engine's worker reports that what arrived is not what was sent")


def receive_tensors(
    group: BroadcastGroup, specs: Iterable[TensorSpec], *, bucket_bytes: int, version: int
) -> dict[str, torch.Tensor]:
    """Return the verified tensors that ``send_tensors`` sends, in this host's memory.

    They share one buffer of the model's size: the check of the layers needs all of it.

    Raises:
        TransferBroken: a member is gone or late, or another one refused what arrived there.
        WeightSyncError: what arrived here is not what was sent.
    """
    order = in_file_order(specs)
    num_bytes = sum(spec.num_bytes for spec in order)
    whole = torch.empty(num_bytes, dtype=torch.uint8)
    digest = _digest()
    for index, begin in enumerate(range(0, num_bytes, bucket_bytes)):
        bucket = whole[begin : begin + bucket_bytes]
        group.broadcast(bucket, f"bucket {index}")
        digest.update(bucket.numpy().data)
    sent = _as_tensor(bytes(DIGEST_BYTES))
    group.broadcast(sent, "its digest")
    if bytes(sent.tolist()) != digest.digest():
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


def _digest() -> blake3:
    return blake3(max_threads=thread_count())


def _as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
