"""A client's connection to one engine: it batches requests, and notices failure and recovery.

A Serve call costs about as much CPU as a short answer, so requests that are ready together share
one. Their answers come back one by one: a batch never waits for its slowest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from cast_ray.errors import CastRayError, EngineError, RemoteTimeout
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane, Refusal
from serve.messages import EngineStats

logger = logging.getLogger(__name__)

_LONGEST_GATHERING_S = 0.002
"""How long a request waits for others that become ready in the same turn of the event loop. When an
engine finishes many answers at once, the first of the next requests must reach it before the last
is ready: an idle engine costs more than a second call."""
_SMALLEST_EARLY_CALL = 8
"""Fewest requests in a call that does not wait longer: a small call costs more than its turns. An
engine that has more of our requests than slots is not idle, so its calls wait for all of them."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_CHECKS_PER_TIMEOUT = 4
DIRECT = {"grpc_proxy": ""}
"""Environment of a process that sends turns: Serve's gRPC would ask ``http_proxy`` for the way to a
replica, whatever Ray's own channels do. gRPC reads it when it connects."""
_FAILURES = (RayError, RayServeException, grpc.RpcError)
"""Exceptions that mean the replica, or the connection to it, is gone."""


@dataclass(slots=True, eq=False)
class Ask:
    """One request and its future answer."""

    request: GenerateRequest
    lane: Lane
    answer: asyncio.Future[Completion]
    failed_at: float | None = None
    """The event loop's time when the request first found an engine down."""
    num_failures: int = 0
    """How many engines failed with it."""


class EngineLink:
    """Sends to one engine, notices that it is down, and waits for its return."""

    def __init__(
        self,
        handle: DeploymentHandle,
        *,
        is_up: bool = True,
        slots: int,
        timeout_s: float,
        recovery_timeout_s: float,
        on_failed: Callable[[Sequence[Ask]], None],
        on_return: Callable[[], None],
    ) -> None:
        """Prepare a link, inside the event loop that will use it.

        Args:
            handle: of the engine's application.
            is_up: whether the engine counts as up; otherwise its return is awaited.
            slots: this client's share of the requests that the engine runs together.
            timeout_s: an engine that is up and writes nothing for this long has stalled.
            recovery_timeout_s: how long an engine that is down may take to recover.
            on_failed: takes back the requests that the engine failed to answer.
            on_return: called when the engine is up again.
        """
        self.name = handle.app_name
        self.is_up = is_up
        self.num_calls = 0
        self.num_failures = 0
        self.last_failure: CastRayError | None = None
        self._handle = handle
        # By value an answer is a gRPC message and not an object in Ray's store: with six turns per
        # call 1.0 ms of CPU per turn over all processes, 1.4 by reference.
        self._stream = handle.options(stream=True, _by_reference=False).generate
        os.environ.update(DIRECT)
        self._slots = slots
        self._timeout_s = timeout_s
        self._recovery_timeout_s = recovery_timeout_s
        self._on_failed = on_failed
        self._on_return = on_return
        self._waiting: list[Ask] = []
        self._asked: set[Ask] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_watched = False
        self._first_at = 0.0
        self._answered_at = 0.0
        self._failures_in_row = 0
        if not is_up:
            self._run(self._await_return())

    @property
    def num_outstanding(self) -> int:
        """How many of this client's requests are not answered yet."""
        return len(self._asked)

    def send(self, ask: Ask) -> None:
        """Send a request with all others that are ready in this turn of the event loop."""
        loop = asyncio.get_running_loop()
        if not self._asked:
            self._answered_at = loop.time()
        if not self._is_watched:
            self._is_watched = True
            self._run(self._watch())
        if not self._waiting:
            self._first_at = loop.time()
            loop.call_soon(self._flush)
        self._waiting.append(ask)
        self._asked.add(ask)
        may_be_empty = len(self._asked) - len(self._waiting) < self._slots
        is_call = len(self._waiting) >= _SMALLEST_EARLY_CALL
        if may_be_empty and is_call and loop.time() - self._first_at > _LONGEST_GATHERING_S:
            self._flush()

    def _run(self, work: Any) -> None:  # Any: a coroutine, whose types say nothing here
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        if self.is_up:
            self.num_calls += 1
            # Not in the task: the call leaves now, while other episodes prepare their requests.
            answers = self._stream.remote([ask.request for ask in batch])
            self._run(self._read(answers, batch))
        else:  # it went down a moment ago
            self._asked.difference_update(batch)
            self._on_failed(batch)

    async def _read(self, answers: Any, batch: list[Ask]) -> None:
        # Any: Serve does not type a stream's response as a stream.
        left = dict(enumerate(batch))
        failure: CastRayError = EngineError(f"engine {self.name} left requests unanswered")
        is_engine_down = True
        try:
            async for finished in answers:
                self._take(finished, left)
            if not left:
                return
        except Exception as error:  # over gRPC the replica's own exception arrives
            failure = local_error(error, self.name)
            is_engine_down = _is_engine_down(error)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            failure = EngineError(f"Serve removed engine {self.name}")
        self._asked.difference_update(left.values())
        if is_engine_down:
            self._note_failure(failure)
            for ask in left.values():
                ask.num_failures += 1
            self._on_failed([ask for ask in left.values() if not ask.answer.done()])
        else:
            _fail(left.values(), failure)

    def _take(
        self, finished: Sequence[tuple[int, Completion | Refusal]], left: dict[int, Ask]
    ) -> None:
        self._answered_at = asyncio.get_running_loop().time()
        self._failures_in_row = 0
        for index, outcome in finished:
            ask = left.pop(index)
            self._asked.discard(ask)
            if ask.answer.done():  # its episode was cancelled
                continue
            if isinstance(outcome, Refusal):
                ask.answer.set_exception(EngineError(f"engine {self.name}: {outcome.reason}"))
            else:
                ask.answer.set_result(outcome)

    def _note_failure(self, failure: CastRayError) -> None:
        if not self.is_up:
            return  # another call has just reported it
        self.is_up = False
        self.num_failures += 1
        self._failures_in_row += 1
        self.last_failure = failure
        if self._failures_in_row == 1:  # the next ones continue the same failure
            logger.warning("%s; its unanswered requests are repeated", failure)
        self._run(self._await_return())

    async def _await_return(self) -> None:
        """Ask for a sign of life, at growing intervals, until there is one."""
        pause = _FIRST_PAUSE_S * 2 ** max(self._failures_in_row - 1, 0)
        while True:
            # Random, because many clients lose an engine at once and must not return at once.
            await asyncio.sleep(min(pause, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5))
            if await self._stats() is not None:
                self.is_up = True
                self._on_return()
                return
            pause *= 2

    async def _stats(self) -> EngineStats | None:
        """Return the engine's totals, or None if it does not answer."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._handle.stats.remote()
        except (*_FAILURES, TimeoutError):
            return None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return None

    async def _watch(self) -> None:
        """Fail the requests of an engine that stalled, or did not recover in time.

        What counts is the engine's progress, not this client's: a request may wait for those of
        other clients, and for weights that its engine does not have yet.
        """
        loop = asyncio.get_running_loop()
        excused_at = 0.0
        while True:
            await asyncio.sleep(self._timeout_s / _CHECKS_PER_TIMEOUT)
            quiet = loop.time() - self._answered_at
            if not self._asked or quiet < self._timeout_s:
                continue
            stats = await self._stats()
            oldest = min((ask.request.min_weight_version for ask in self._asked), default=0)
            if stats is None:  # going down or coming up
                if quiet >= self._recovery_timeout_s:
                    self._fail_all(f"did not recover within {self._recovery_timeout_s:g} s")
            elif stats.seconds_since_progress < self._timeout_s or oldest > stats.weight_version:
                excused_at = loop.time()
            elif loop.time() - excused_at >= self._timeout_s:
                self._fail_all(f"wrote nothing for {self._timeout_s:g} s")

    def _fail_all(self, what: str) -> None:
        stalled, self._asked = self._asked, set()
        _fail(stalled, RemoteTimeout(f"engine {self.name} {what}; see its log"))


def _fail(asks: Any, failure: CastRayError) -> None:  # Any: a set or a view of a dictionary
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(failure)


def _is_cancelled() -> bool:
    """Return whether the current task is cancelled: Serve also cancels calls, not our tasks."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_engine_down(error: Exception) -> bool:
    """Return whether another try can help: not if the engine itself refused."""
    if isinstance(error, RayTaskError):
        return isinstance(error.cause, EngineError)
    return isinstance(error, (EngineError, *_FAILURES))


def local_error(error: Exception, engine: str) -> CastRayError:
    """Return an engine's failure as one of our own errors, in one sentence.

    Ray wraps a remote exception together with its traceback. An exception that is not ours means
    that the engine, or the connection to it, is gone.
    """
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, CastRayError):
        return type(cause)(f"engine {engine}: {cause}")
    return EngineError(f"engine {engine} failed: {str(error).strip().splitlines()[-1]}")
