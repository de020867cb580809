"""The way to one engine: requests that are ready together travel together, and what fails is said.

A Serve call costs about as much CPU as a short answer. Its answers come back one by one, so a
batch never waits for its slowest.
"""

from __future__ import annotations

import asyncio
import logging
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
"""A request waits so long for others that become ready in the same turn of the event loop. When an
engine finishes many answers at once, the first of their successors must reach it before the last
is made: an engine that is empty meanwhile costs more than a second call."""
_SMALLEST_EARLY_CALL = 8
"""And so many travel together then: alone, a call costs more than its turns. An engine that has
more of our requests than slots is not empty and gets whole cohorts."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_CHECKS_PER_TIMEOUT = 4
_FAILURES = (RayError, RayServeException, grpc.RpcError)
"""A replica that is gone, or the way to it."""


@dataclass(slots=True, eq=False)
class Ask:
    """One request on its way."""

    request: GenerateRequest
    lane: Lane
    answer: asyncio.Future[Completion]
    failed_at: float | None = None
    """The event loop's time when this first met an engine that was down."""
    num_failures: int = 0
    """Engines that failed with it."""


class EngineLink:
    """Sends to one engine, notices that it is down, and looks for its return."""

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
            is_up: whether the engine counts as up; one that does not is looked for.
            slots: this client's share of the requests that the engine runs together.
            timeout_s: an engine that is up and writes nothing for so long has stalled.
            recovery_timeout_s: one that is not up may take so long to come back.
            on_failed: gets requests back that the engine did not answer because it failed.
            on_return: called when the engine is up again.
        """
        self.name = handle.app_name
        self.is_up = is_up
        self.num_calls = 0
        self.num_failures = 0
        self.last_failure: CastRayError | None = None
        self._handle = handle
        # Over gRPC an answer is a message and not an object with an owner and a count: with six
        # turns a call 1.0 ms of CPU a turn for all processes, 1.4 by reference.
        self._stream = handle.options(stream=True, _by_reference=False).generate
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
        """Requests that this client has sent and that are not answered."""
        return len(self._asked)

    def send(self, ask: Ask) -> None:
        """Ask the engine, together with all that is ready in this turn of the event loop."""
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
            # Not in the task: it goes on its way now, while further episodes have their turn.
            answers = self._stream.remote([ask.request for ask in batch])
            self._run(self._read(answers, batch))
        else:  # since a moment ago
            self._asked.difference_update(batch)
            self._on_failed(batch)

    async def _read(self, answers: Any, batch: list[Ask]) -> None:
        # Any: Serve does not say that a stream's response is a stream.
        left = dict(enumerate(batch))
        failure: CastRayError = EngineError(f"engine {self.name} left requests unanswered")
        is_engine_down = True
        try:
            async for finished in answers:
                self._take(finished, left)
            if not left:
                return
        except Exception as error:  # over gRPC whatever the replica raises comes as itself
            failure = local_error(error, self.name)
            is_engine_down = _is_engine_down(error)
        except asyncio.CancelledError:
            # Serve cancels the calls of a replica that it takes away, which is no cancellation of
            # this task.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            failure = EngineError(f"engine {self.name} was taken away")
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
            if ask.answer.done():  # its episode was given up
                continue
            if isinstance(outcome, Refusal):
                ask.answer.set_exception(EngineError(f"engine {self.name}: {outcome.reason}"))
            else:
                ask.answer.set_result(outcome)

    def _note_failure(self, failure: CastRayError) -> None:
        if not self.is_up:
            return  # another call of the same moment said so
        self.is_up = False
        self.num_failures += 1
        self._failures_in_row += 1
        self.last_failure = failure
        if self._failures_in_row == 1:  # the next one in a row is the same failure going on
            logger.warning("%s; what it did not answer is asked again", failure)
        self._run(self._await_return())

    async def _await_return(self) -> None:
        """Ask for a sign of life, ever more seldom, until there is one."""
        pause = _FIRST_PAUSE_S * 2 ** max(self._failures_in_row - 1, 0)
        while True:
            # Many actors lose an engine at the same moment and must not return as one.
            await asyncio.sleep(min(pause, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5))
            if await self._stats() is not None:
                self.is_up = True
                self._on_return()
                return
            pause *= 2

    async def _stats(self) -> EngineStats | None:
        """Return the engine's totals, or None when it does not answer."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._handle.stats.remote()
        except (*_FAILURES, TimeoutError):
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None

    async def _watch(self) -> None:
        """Give up what an engine that is up has had for too long without finishing anything.

        Progress is the engine's, not this client's: a request may have to wait for those of other
        actors, and for weights that its engine does not have yet.
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
            if stats is None:  # on its way down or up
                if quiet >= self._recovery_timeout_s:
                    self._give_up(f"did not come back within {self._recovery_timeout_s:g} s")
            elif stats.seconds_since_progress < self._timeout_s or oldest > stats.weight_version:
                excused_at = loop.time()
            elif loop.time() - excused_at >= self._timeout_s:
                self._give_up(f"wrote nothing for {self._timeout_s:g} s")

    def _give_up(self, what: str) -> None:
        stalled, self._asked = self._asked, set()
        _fail(stalled, RemoteTimeout(f"engine {self.name} {what}; see its log"))


def _fail(asks: Any, failure: CastRayError) -> None:  # Any: a set or a view of a dictionary
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(failure)


def _is_engine_down(error: Exception) -> bool:
    """Return whether asking again can help: not where the engine itself said what is wrong."""
    if isinstance(error, RayTaskError):
        return isinstance(error.cause, EngineError)
    return isinstance(error, (EngineError, *_FAILURES))


def local_error(error: Exception, engine: str) -> CastRayError:
    """Return what went wrong in an engine as one of our own errors.

    Ray wraps an exception of the other side together with its whole traceback; a user needs the
    sentence. What is not ours means that the engine, or the way to it, is gone.
    """
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, CastRayError):
        return type(cause)(f"engine {engine}: {cause}")
    return EngineError(f"engine {engine} failed: {str(error).strip().splitlines()[-1]}")
