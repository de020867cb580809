"""The learner and the workers of all engines as one group, for one update of weights.

The sender and every worker meet at a store on the sender's host, are a group, and part: a group
kept over time would hold engines that have died since. NCCL where the tensors lie on a GPU, Gloo
on CPU, by the same code. vLLM's and DeepSpeed's own groups are left alone: this one is PyTorch's
backend itself and no part of its global state.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
from torch import distributed
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]  # documented
from torch.distributed.distributed_c10d import PrefixStore, Store

from cast_ray.errors import TransferBroken, WeightSyncError

SENDER = 0
"""Its rank; those of the engines' workers follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where the members of one broadcast meet; all but their ranks."""

    address: str
    """Of the sender's host."""
    port: int
    token: str
    """Of this broadcast alone: who comes with that of an earlier one does not get in between."""
    world_size: int
    """The sender and all workers."""
    device: str
    """Kind of device that the sender sends from: ``cpu`` or ``cuda``."""
    bucket_bytes: int


class BroadcastGroup:
    """One member's end of a group. Leave it as a context manager."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        world_size: int,
        device: torch.device,
        timeout_s: float,
    ) -> None:
        """Meet the other members.

        Args:
            store: that all of them share, and nobody else.
            rank: of this member; 0 sends.
            world_size: how many they are.
            device: where this member's tensors lie.
            timeout_s: from now until the group has done all that it is for.

        Raises:
            TransferBroken: they did not all come in time.
        """
        self.device, self.rank, self.world_size = device, rank, world_size
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._call_roll(store)
        with self._broken_named("while its members were joined"):
            self._backend = _backend(store, rank, world_size, device, self._left())

    def broadcast(self, buffer: torch.Tensor, what: str) -> None:
        """Give the sender's buffer to all others; ``what`` names it in an error.

        Raises:
            TransferBroken: a member is gone, or late.
        """
        with self._broken_named(f"in {what}"):
            left = self._left()
            self._backend.broadcast(buffer, SENDER, left).wait(left)

    def all_right(self, is_right: bool) -> bool:
        """Return whether every member says that all is right.

        Raises:
            TransferBroken: a member is gone, or late.
        """
        verdict = torch.tensor([int(is_right)], dtype=torch.int32, device=self.device)
        with self._broken_named("in its verdict"):
            left = self._left()
            self._backend.allreduce(verdict, distributed.ReduceOp.MIN, left).wait(left)
        return bool(verdict.item())

    def __enter__(self) -> BroadcastGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections; the others notice at once if they still waited for this member."""
        if kind is None:
            self._backend.shutdown()
        else:
            self._backend.abort()
        del self._backend

    def _call_roll(self, store: Store) -> None:
        """Return when all members have come: a backend that waits could not name who is missing."""
        keys = [f"rank {rank}" for rank in range(self.world_size)]
        with self._broken_named("before its members had met"):
            store.set(keys[self.rank], "here")
            try:
                store.wait(keys, self._left())
            except distributed.DistStoreError as error:
                missing = [key for key in keys if not store.check([key])]
                raise TransferBroken(
                    f"{', '.join(missing) or 'a member'} did not come to the broadcast of weights "
                    f"within {self._timeout_s:g} s (this is rank {self.rank} of "
                    f"{self.world_size}); the weights are as before"
                ) from error

    def _left(self) -> timedelta:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TransferBroken(
                f"the broadcast of weights was not done within {self._timeout_s:g} s at rank "
                f"{self.rank} of {self.world_size}; the weights are as before"
            )
        # Rounded up to what PyTorch counts in: zero would be no limit.
        return timedelta(milliseconds=int(left_s * 1000) + 1)

    @contextmanager
    def _broken_named(self, where: str) -> Iterator[None]:
        """Say what failed, of errors that PyTorch makes no types of."""
        try:
            yield
        except RuntimeError as error:
            raise TransferBroken(
                f"the broadcast of weights broke {where}, seen by rank {self.rank} of "
                f"{self.world_size}: a member is gone or took longer than {self._timeout_s:g} s; "
                f"the weights are as before ({str(error).strip().splitlines()[0]})"
            ) from error


def open_store(address: str) -> TCPStore:
    """Return a store on this host that listens on a free port.

    Port 0: the kernel gives one to the socket that listens, so nobody can be faster.
    """
    return TCPStore(address, 0, is_master=True, wait_for_workers=False)


def of_meeting(store: Store, meeting: Meeting) -> Store:
    """Return the part of a store that is one broadcast's own."""
    return PrefixStore(meeting.token, store)


def join(meeting: Meeting, *, rank: int, device: torch.device, timeout_s: float) -> BroadcastGroup:
    """Return a receiver's end of a broadcast, when all members have come.

    Raises:
        TransferBroken: they did not, or the sender is gone.
        WeightSyncError: the sender's tensors are on another kind of device.
    """
    if device.type != meeting.device:
        raise WeightSyncError(
            f"the learner broadcasts from {meeting.device} and the engine computes on "
            f"{device.type}: set engine.weight_backend=cast_ray_file"
        )
    started = time.monotonic()
    place = (meeting.address, meeting.port)
    try:
        # The sender listens before anybody hears of it, so who does not find it finds it no more.
        # PyTorch's store would go on trying, for up to twice its time-out.
        socket.create_connection(place, timeout=timeout_s).close()
        store = TCPStore(
            *place,
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s),
        )
    except (OSError, RuntimeError) as error:
        raise TransferBroken(
            f"rank {rank} of the broadcast of weights found no sender at {meeting.address}:"
            f"{meeting.port} within {timeout_s:g} s; the weights are as before"
        ) from error
    return BroadcastGroup(
        of_meeting(store, meeting),
        rank=rank,
        world_size=meeting.world_size,
        device=device,
        timeout_s=timeout_s - (time.monotonic() - started),
    )


def _backend(
    store: Store,
    rank: int,
    world_size: int,
    device: torch.device,
    timeout: timedelta,
) -> Any:  # Any: PyTorch's types lack the collectives of a backend
    if device.type != "cuda":
        return distributed.ProcessGroupGloo(store, rank, world_size, timeout)
    options = distributed.ProcessGroupNCCL.Options()
    # Beyond every wait of ours: NCCL's own watchdog would end the process.
    options._timeout = 4 * timeout
    return distributed.ProcessGroupNCCL(store, rank, world_size, options)
