"""Members of a broadcast, each a process of its own; what can go wrong with one goes wrong here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from cast_ray.errors import CastRayError
from cast_ray.weights.broadcast import WeightSender, receive_tensors
from cast_ray.weights.file import TensorSpec
from cast_ray.weights.group import BroadcastGroup, Meeting, join
from cast_ray.weights.manifest import WeightManifest


class MeddledGroup:
    """A group where something happens to each bucket after it has come."""

    def __init__(self, group: BroadcastGroup, meddle: Callable[[torch.Tensor, str], None]) -> None:
        self._group, self._meddle = group, meddle
        self.all_right = group.all_right

    def broadcast(self, buffer: torch.Tensor, what: str) -> None:
        self._group.broadcast(buffer, what)
        self._meddle(buffer, what)


def receive(
    channel: Connection,
    meeting: Meeting,
    rank: int,
    specs: Sequence[TensorSpec],
    timeout_s: float,
    fault: str,
) -> None:
    """Receive once and tell what came as ``{name: bytes}``, or the error; and the seconds."""
    started = time.monotonic()
    found: Any
    try:
        with join(meeting, rank=rank, timeout_s=timeout_s) as group:
            meddled: Any = MeddledGroup(group, lambda bucket, what: _go_wrong(fault, bucket, what))
            tensors = receive_tensors(meddled, specs, bucket_bytes=meeting.bucket_bytes, version=1)
        found = {
            name: tensor.flatten().view(torch.uint8).numpy().tobytes()
            for name, tensor in tensors.items()
        }
    except CastRayError as error:
        found = error
    channel.send((found, time.monotonic() - started))


def send(channel: Connection, manifest: WeightManifest, world_size: int, fault: str) -> None:
    """Send once, as far as the fault lets it."""
    sender = WeightSender(manifest, address="127.0.0.1", world_size=world_size, bucket_bytes=64)
    channel.send(sender.meeting)
    if fault == "dies before":
        os._exit(1)
    sender.send(timeout_s=20)


def _go_wrong(fault: str, bucket: torch.Tensor, what: str) -> None:
    if what != "bucket 1":
        return
    if fault == "dies":
        os._exit(1)
    if fault == "flips":
        bucket[3] ^= 4
    if fault == "hangs":
        time.sleep(30)  # the fault: longer than the others wait


class SenderHost:
    """Stands for the learner's rank 0: a Ray actor that sends."""

    def open(self, manifest: WeightManifest, world_size: int) -> Meeting:
        self._sender = WeightSender(
            manifest,
            address="127.0.0.1",
            world_size=world_size,
            bucket_bytes=2**18,
        )
        return self._sender.meeting

    def send(self, timeout_s: float) -> CastRayError | None:
        try:
            self._sender.send(timeout_s=timeout_s)
        except CastRayError as error:
            return error
        return None
