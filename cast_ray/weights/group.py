"""The learner and the workers of all engines as one group, for a single weight update.

The sender and every worker meet at a store on the sender's host, form a group, and dissolve it: a
lasting group would contain engines that have died since. The group is PyTorch's Gloo outside
PyTorch's global state, so vLLM's and DeepSpeed's groups are not affected.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]  # documented
from torch.distributed.distributed_c10d import PrefixStore, Store

from cast_ray.errors import TransferBroken

SENDER = 0
"""The sender's rank; those of the engines' workers follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where the members of one broadcast meet, the same for all of them."""

    address: str
    """Of the sender's host."""
    port: int
    token: str
    """Of this broadcast alone: a member of an earlier one cannot interfere."""
    world_size: int
    """The sender and all workers."""
    bucket_bytes: int


class BroadcastGroup:
    """One member's end of a group, which closes as a context manager."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        world_size: int,
        timeout_s: float,
    ) -> None:
        """Meet the other members.

        Args:
            store: shared by the members, and by no one else.
            rank: of this member; 0 sends.
            world_size: number of members.
            timeout_s: from now until the group's work is complete.

        Raises:
            TransferBroken: not all members arrived in time.
        """
        self.rank, self.world_size = rank, world_size
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._call_roll(store)
        with self._broken_named("while its members were connected"):
            # Any: PyTorch's types lack the collectives of a backend.
            self._backend: Any = distributed.ProcessGroupGloo(store, rank, world_size, self._left())

    def broadcast(self, buffer: torch.Tensor, what: str) -> None:
        """Send the sender's buffer to all others; ``what`` names it in errors.

        Raises:
            TransferBroken: a member is gone, or late.
        """
        with self._broken_named(f"in {what}"):
            left = self._left()
            self._backend.broadcast(buffer, SENDER, left).wait(left)

    def all_right(self, is_right: bool) -> bool:
        """Return whether every member reports success.

        Raises:
            TransferBroken: a member is gone, or late.
        """
        verdict = torch.tensor([int(is_right)], dtype=torch.int32)
        with self._broken_named("in its verdict"):
            left = self._left()
            self._backend.allreduce(verdict, distributed.ReduceOp.MIN, left).wait(left)
        return bool(verdict.item())

    def __enter__(self) -> BroadcastGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the connections; members that still wait for this one notice at once."""
        if kind is None:
            self._backend.shutdown()
        else:
            self._backend.abort()
        del self._backend

    def _call_roll(self, store: Store) -> None:
        """Return when all members have arrived; unlike a backend, name those that are missing."""
        keys = [f"rank {rank}" for rank in range(self.world_size)]
        with self._broken_named("before its members had met"):
            store.set(keys[self.rank], "here")
            try:
                store.wait(keys, self._left())
            except distributed.DistStoreError as error:
                missing = [key for key in keys if not store.check([key])]
                raise TransferBroken(
                    f"{', '.join(missing) or 'a member'} did not join the broadcast of weights "
                    f"within {self._timeout_s:g} s (this is rank {self.rank} of "
                    f"{self.world_size}); the weights are as before"
                ) from error

    def _left(self) -> timedelta:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TransferBroken(
                f"the broadcast of weights was not complete within {self._timeout_s:g} s at rank "
                f"{self.rank} of {self.world_size}; the weights are as before"
            )
        # Rounded up to what PyTorch counts in: zero would be no limit.
        return timedelta(milliseconds=int(left_s * 1000) + 1)

    @contextmanager
    def _broken_named(self, where: str) -> Iterator[None]:
        """Raise PyTorch's untyped errors as TransferBroken, with the place."""
        try:
            yield
        except RuntimeError as error:
            raise TransferBroken(
                f"the broadcast of weights broke {where}, seen by rank {self.rank} of "
                f"{self.world_size}: a member is gone or took longer than {self._timeout_s:g} s; "
                f"the weights are as before ({str(error).strip().splitlines()[0]})"
            ) from error


def open_store(address: str) -> TCPStore:
    """Return a store that listens at one address of this host, on a port that the kernel chose.

    PyTorch itself would listen at all addresses. The socket listens already, so no other process
    can take the port.
    """
    server = socket.create_server((address, 0))
    port = server.getsockname()[1]
    return TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=server.detach(),  # the store closes it
    )


def of_meeting(store: Store, meeting: Meeting) -> Store:
    """Return the part of a store that belongs to one broadcast."""
    return PrefixStore(meeting.token, store)


def join(meeting: Meeting, *, rank: int, timeout_s: float) -> BroadcastGroup:
    """Return a receiver's end of a broadcast, once all members have arrived.

    Raises:
        TransferBroken: not all members arrived, or the sender is gone.
    """
    started = time.monotonic()
    place = (meeting.address, meeting.port)
    try:
        # The sender listens before its address is announced: if it is not there now, it is gone.
        # PyTorch's store would keep trying, for up to twice its time-out.
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
        timeout_s=timeout_s - (time.monotonic() - started),
    )
