"""A broadcast among real processes, over Gloo: it comes whole to all, or breaks off with a name."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cast_ray.errors import TransferBroken, WeightSyncError
from cast_ray.weights.broadcast import WeightSender
from cast_ray.weights.group import Meeting, open_store
from cast_ray.weights.manifest import WeightManifest, publish_weights
from tests.support import broadcast_members

TIMEOUT_S = 20.0
SHORT_S = 1.5
LONGER_S = 4.0
"""Enough for processes of a busy machine to be there."""
PROMPT_S = 15.0
"""Well below ``TIMEOUT_S``: a member that is gone is no member that is waited for."""

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.support.broadcast_members"])


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "large": torch.randn(37, 5),
        "half": torch.randn(3, 7).bfloat16(),
        "empty": torch.empty(0, 4),
        "one": torch.tensor(3, dtype=torch.uint8),
    }


@pytest.fixture
def manifest(state: dict[str, torch.Tensor], tmp_path: Path) -> WeightManifest:
    return publish_weights(state, directory=tmp_path, version=1)


class Receiver:
    """A process that receives one broadcast."""

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        manifest: WeightManifest,
        *,
        timeout_s: float = TIMEOUT_S,
        fault: str = "",
    ) -> None:
        self._channel, theirs = context.Pipe()
        self.process = context.Process(
            target=broadcast_members.receive,
            args=(theirs, meeting, rank, manifest.tensors, timeout_s, fault),
        )
        self.process.start()
        theirs.close()

    def outcome(self) -> tuple[Any, float]:
        """Return what came or the error, and the seconds it took."""
        assert self._channel.poll(60)
        return self._channel.recv()


def a_sender(manifest: WeightManifest, num_receivers: int) -> WeightSender:
    return WeightSender(
        manifest,
        address="127.0.0.1",
        world_size=1 + num_receivers,
        bucket_bytes=64,
    )


def bytes_of(state: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {
        name: tensor.flatten().view(torch.uint8).numpy().tobytes() for name, tensor in state.items()
    }


def test_a_store_listens_at_the_address_that_it_was_given_and_at_no_other() -> None:
    store = open_store("127.0.0.2")
    socket.create_connection(("127.0.0.2", store.port), timeout=20).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", store.port), timeout=20)


@pytest.mark.parametrize("num_receivers", [1, 2])
def test_every_receiver_holds_the_tensors_that_were_sent(
    state: dict[str, torch.Tensor], manifest: WeightManifest, num_receivers: int
) -> None:
    sender = a_sender(manifest, num_receivers)
    receivers = [Receiver(sender.meeting, 1 + index, manifest) for index in range(num_receivers)]
    sender.send(timeout_s=TIMEOUT_S)
    for receiver in receivers:
        found, _ = receiver.outcome()
        assert found == bytes_of(state)


def test_a_receiver_that_never_comes_is_named_by_all_within_the_time_out(
    manifest: WeightManifest,
) -> None:
    sender = a_sender(manifest, 2)
    receiver = Receiver(sender.meeting, 1, manifest, timeout_s=SHORT_S)
    started = time.monotonic()
    with pytest.raises(TransferBroken, match=r"rank 2 .* 1.5 s"):
        sender.send(timeout_s=SHORT_S)
    assert time.monotonic() - started < SHORT_S + 2
    error, seconds = receiver.outcome()
    assert isinstance(error, TransferBroken)
    assert "as before" in str(error)
    assert seconds < SHORT_S + 2


def test_a_receiver_that_dies_breaks_the_broadcast_for_all_at_once(
    manifest: WeightManifest,
) -> None:
    sender = a_sender(manifest, 2)
    dying = Receiver(sender.meeting, 1, manifest, fault="dies")
    other = Receiver(sender.meeting, 2, manifest)
    started = time.monotonic()
    with pytest.raises(TransferBroken, match=r"rank 0 of 3"):
        sender.send(timeout_s=TIMEOUT_S)
    assert time.monotonic() - started < PROMPT_S
    error, seconds = other.outcome()
    dying.process.join(10)
    assert dying.process.exitcode == 1
    assert isinstance(error, TransferBroken)
    assert seconds < PROMPT_S


def test_a_receiver_that_hangs_breaks_the_broadcast_for_all_within_the_time_out(
    manifest: WeightManifest,
) -> None:
    sender = a_sender(manifest, 2)
    hanging = Receiver(sender.meeting, 1, manifest, fault="hangs")
    other = Receiver(sender.meeting, 2, manifest, timeout_s=LONGER_S)
    started = time.monotonic()
    with pytest.raises(TransferBroken, match=r"4 s"):
        sender.send(timeout_s=LONGER_S)
    assert time.monotonic() - started < LONGER_S + 2
    error, seconds = other.outcome()
    hanging.process.kill()
    assert isinstance(error, TransferBroken)
    assert seconds < LONGER_S + 2


def test_a_sender_that_has_died_is_missed_at_once(manifest: WeightManifest) -> None:
    ours, theirs = context.Pipe()
    process = context.Process(
        target=broadcast_members.send, args=(theirs, manifest, 3, "dies before")
    )
    process.start()
    assert ours.poll(60)
    meeting = ours.recv()
    process.join(10)
    receivers = [Receiver(meeting, rank, manifest) for rank in (1, 2)]
    for receiver in receivers:
        error, seconds = receiver.outcome()
        assert isinstance(error, TransferBroken)
        assert "127.0.0.1" in str(error)
        assert seconds < PROMPT_S  # a port where nobody listens is not tried again


def test_a_flipped_bit_is_refused_by_all_and_named_where_it_was(manifest: WeightManifest) -> None:
    sender = a_sender(manifest, 2)
    hurt = Receiver(sender.meeting, 1, manifest, fault="flips")
    whole = Receiver(sender.meeting, 2, manifest)
    with pytest.raises(WeightSyncError):
        sender.send(timeout_s=TIMEOUT_S)
    [(of_hurt, _), (of_whole, _)] = [hurt.outcome(), whole.outcome()]
    assert type(of_hurt) is WeightSyncError
    assert "version 1" in str(of_hurt)
    assert type(of_whole) is TransferBroken
    assert "another worker" in str(of_whole)


def test_one_that_belongs_to_another_broadcast_does_not_get_in(
    state: dict[str, torch.Tensor], manifest: WeightManifest
) -> None:
    sender = a_sender(manifest, 1)
    stale = replace(sender.meeting, token="of an earlier one")
    stranger = Receiver(stale, 1, manifest, timeout_s=SHORT_S)
    receiver = Receiver(sender.meeting, 1, manifest)
    sender.send(timeout_s=TIMEOUT_S)
    assert receiver.outcome()[0] == bytes_of(state)
    assert isinstance(stranger.outcome()[0], TransferBroken)


def test_a_damaged_file_is_refused_before_anybody_waits_for_it(manifest: WeightManifest) -> None:
    path = Path(manifest.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(WeightSyncError, match="checksum"):
        a_sender(manifest, 1)


def test_broadcasts_leave_no_threads_behind(manifest: WeightManifest) -> None:
    def native_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    def broadcast_once() -> None:
        sender = a_sender(manifest, 1)
        receiver = Receiver(sender.meeting, 1, manifest)
        sender.send(timeout_s=TIMEOUT_S)
        receiver.outcome()

    broadcast_once()  # what is made once stays
    before = native_threads()
    for _ in range(3):
        broadcast_once()
    assert native_threads() <= before
    assert threading.active_count() < 20
