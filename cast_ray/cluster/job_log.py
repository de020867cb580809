"""Follow a job across lost connections: its output as it is written, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import aiohttp
from ray.job_submission import JobStatus

from cast_ray.cluster.jobs_api import JobServer
from cast_ray.errors import EnvironmentSetupError, RemoteTimeout, RunInterrupted

_LOST = (EnvironmentSetupError, RemoteTimeout)
"""How a request fails if the connection is lost; a missing job raises something else."""
_TAIL_LOST = (*_LOST, RuntimeError, OSError, aiohttp.ClientError)
_LAST_ATTEMPTS = 3
"""To read the last lines of a job that has ended."""


def follow(
    server: JobServer,
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
        write: called with each piece of text once, in order.
        retry_for_s: how long the connection may be lost.
        silence_s: after this long without output, ask the server whether the job still runs.
        retry_after_s: between two attempts.

    Raises:
        ConfigError: there is no job of that name.
        RunInterrupted: the connection is lost; the job keeps running.
        KeyboardInterrupt: Ctrl-C; the job keeps running.
    """
    follower = _Follower(server, name, write, silence_s=silence_s)
    return asyncio.run(follower.follow(retry_for_s=retry_for_s, retry_after_s=retry_after_s))


class _Follower:
    """Remembers how much of a job's output was written."""

    def __init__(
        self, server: JobServer, name: str, write: Callable[[str], None], *, silence_s: float
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
                        f"job {self._name} keeps running, but its cluster could not be reached "
                        f"for {retry_for_s:.0f} s ({error}); follow the job again with --logs "
                        f"{self._name}"
                    ) from None
            await asyncio.sleep(retry_after_s)

    async def _read_on(self) -> None:
        """Write new output until the server has no more or the connection is lost."""
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
                # A connection that a router dropped is as silent as a job without output.
                if self._server.job(self._name).status.is_terminal():
                    return None
            return coming.result()
        finally:
            if not coming.done():  # a running iterator cannot be closed
                coming.cancel()
                await asyncio.wait({coming})
