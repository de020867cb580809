"""Tokens in, tokens out, for many episodes at once: the way from an environment actor to engines.

A Serve call costs about as much CPU as a short answer, so requests that become ready together
travel together. Their answers come back one by one: a batch never waits for its slowest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import ray
from ray.serve.handle import DeploymentHandle

from cast_ray.errors import CastRayError, EngineError, RemoteTimeout
from cast_ray.generation import Completion, GenerateRequest


class PolicyClient:
    """Generates through a run's engines. Belongs to one event loop."""

    def __init__(
        self, handles: Sequence[DeploymentHandle], *, timeout_s: float, window_s: float
    ) -> None:
        """Prepare a client.

        Args:
            handles: one for each engine, in an order that all clients share.
            timeout_s: limit for one answer, waiting included.
            window_s: how long a request waits for others to travel with; 0.002 is enough for the
                episodes of one actor to meet.
        """
        self._lanes = [_Lane(handle, timeout_s, window_s) for handle in handles]

    async def generate(self, request: GenerateRequest, *, episode_id: int) -> Completion:
        """Return the answer to one request.

        Args:
            request: what to answer.
            episode_id: requests of one id go to the same engine, which has their prefix cached;
                consecutive ids spread evenly.

        Raises:
            RemoteTimeout: no answer in time.
            EngineError: the engine is gone, or failed.
            WeightSyncError: the engine does not trust its weights.
        """
        return await self._lanes[episode_id % len(self._lanes)].generate(request)


class _Lane:
    """The way to one engine."""

    def __init__(self, handle: DeploymentHandle, timeout_s: float, window_s: float) -> None:
        self._name = handle.app_name
        self._stream = handle.options(stream=True).generate
        self._timeout_s = timeout_s
        self._window_s = window_s
        self._waiting: list[tuple[GenerateRequest, asyncio.Future[Completion]]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerateRequest) -> Completion:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Completion] = loop.create_future()
        if not self._waiting:
            loop.call_later(self._window_s, self._send)
        self._waiting.append((request, answer))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError as error:
            raise RemoteTimeout(
                f"engine {self._name} did not answer within {self._timeout_s} s; see its log"
            ) from error

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        call = asyncio.create_task(self._call(batch))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[tuple[GenerateRequest, asyncio.Future[Completion]]]) -> None:
        failure: CastRayError
        try:
            async for done in self._stream.remote([request for request, _ in batch]):
                for index, completion in done:
                    if not batch[index][1].done():
                        batch[index][1].set_result(completion)
            failure = EngineError(f"engine {self._name} left requests unanswered")
        except ray.exceptions.RayError as error:
            failure = local_error(error, self._name)
        for _, answer in batch:
            if not answer.done():
                answer.set_exception(failure)


def local_error(error: ray.exceptions.RayError, engine: str) -> CastRayError:
    """Return what went wrong in an engine as one of our own errors.

    Ray wraps an exception of the other side together with its whole traceback; a user needs the
    sentence. What is not ours means that the engine, or the way to it, is gone.
    """
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, CastRayError):
        return type(error.cause)(f"engine {engine}: {error.cause}")
    return EngineError(f"engine {engine} failed: {error}")
