"""Following a job: what it writes as it comes, and how it ended, across lost connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Protocol

import aiohttp
from ray.job_submission import JobDetails, JobStatus

from cast_ray.errors import EnvironmentSetupError, RemoteTimeout, RunInterrupted

_LOST = (EnvironmentSetupError, RemoteTimeout)
"""What a question may be lost by. A job that does not exist is none of it."""
_TAIL_LOST = (*_LOST, RuntimeError, OSError, aiohttp.ClientError)
_LAST_ATTEMPTS = 3
"""At the last lines of a job that has ended."""


class Followed(Protocol):
    """The part of ``JobServer`` that following needs."""

    def job(self, name: str) -> JobDetails:
        """Return what is known of a job."""
        ...

    def tail(self, name: str) -> AsyncGenerator[str, None]:
        """Return an iterator over what a job writes, from its first line on."""
        ...


def follow(
    server: Followed,
    name: str,
    write: Callable[[str], None],
    *,
    retry_for_s: float = 120.0,
    silence_s: float = 30.0,
    retry_after_s: float = 2.0,
) -> JobStatus:
    """Write what a job writes until it ends, and return how it ended.

    Args:
        server: of the job.
        name: of the job.
        write: takes each piece of text once, in order.
        retry_for_s: how long the connection may be lost.
        silence_s: after so long without a word the server is asked whether it is still there.
        retry_after_s: between two attempts.

    Raises:
        ConfigError: no job of that name.
        RunInterrupted: the connection is lost; the job goes on.
        KeyboardInterrupt: Ctrl-C; the job goes on.
    """
    follower = _Follower(server, name, write, silence_s=silence_s)
    return asyncio.run(follower.follow(retry_for_s=retry_for_s, retry_after_s=retry_after_s))


class _Follower:
    """What was written of a job so far."""

    def __init__(
        self, server: Followed, name: str, write: Callable[[str], None], *, silence_s: float
    ) -> None:
        self._server, self._name, self._write = server, name, write
        self._silence_s = silence_s
        self._num_written = 0

    async def follow(self, *, retry_for_s: float, retry_after_s: float) -> JobStatus:
        lost_since: float | None = None
        last_attempts = 0
        while True:
            try:
                await self._read_on()
                is_whole = True
            except _TAIL_LOST:
                is_whole = False
            try:
                status = self._server.job(self._name).status
                lost_since = None
                last_attempts += status.is_terminal()
                if last_attempts == _LAST_ATTEMPTS or (status.is_terminal() and is_whole):
                    return status
            except _LOST as error:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > retry_for_s:
                    raise RunInterrupted(
                        f"job {self._name} goes on, but for {retry_for_s:.0f} s its cluster was "
                        f"not reached ({error}); follow it again with --logs {self._name}"
                    ) from None
            await asyncio.sleep(retry_after_s)

    async def _read_on(self) -> None:
        """Write what is new, until the server has no more or the connection is lost."""
        num_read = 0
        # Every connection begins at the job's first line.
        async with aclosing(self._server.tail(self._name)) as pieces:
            while (text := await self._next(pieces)) is not None:
                num_read += len(text)
                if num_read > self._num_written:
                    self._write(text[len(text) - (num_read - self._num_written) :])
                    self._num_written = num_read

    async def _next(self, pieces: AsyncIterator[str]) -> str | None:
        """Return the next piece of text; None = there is no more."""
        coming = asyncio.ensure_future(anext(pieces, None))
        try:
            while not (await asyncio.wait({coming}, timeout=self._silence_s))[0]:
                # A connection that a router forgot is as silent as a job with nothing to say.
                if self._server.job(self._name).status.is_terminal():
                    return None
            return coming.result()
        finally:
            if not coming.done():  # the iterator cannot be closed while it runs
                coming.cancel()
                await asyncio.wait({coming})
