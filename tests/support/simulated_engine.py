"""A double of a policy engine: stated slots and latency, first come first served, no model.

For tests and benchmarks of everything around an engine. It is a real Serve deployment with the
calls of ``PolicyDeployment`` that rollouts use, so that what is measured through it is real but
for the answers: those are given at construction, and a request's seed chooses among them.

One timer serves all slots, because every turn takes equally long: slots end in the order in which
they began. A turn therefore costs a queue entry and no task.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import operator
import os
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
from ray import serve as ray_serve

from cast_ray.errors import EngineError
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from cast_ray.weights.manifest import WeightManifest
from serve.client.engines import PolicyEngines
from serve.client.start import run_engines
from serve.messages import EngineStats, WeightReceipt

LOGPROB = -1.0
"""Of every token that this double writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClock:
    """What the slots did since the engine's start, or since the last ``reset_clock``."""

    seconds: float
    """Length of the measurement."""
    num_slots: int
    busy_slot_seconds: float
    """Slots at work, added up."""
    starved_slot_seconds: float
    """Slots empty while a request waited in the engine, added up."""
    num_turns: int
    num_calls: int
    num_yields: int
    cpu_seconds: float
    """Of the whole process."""

    @property
    def empty_fraction(self) -> float:
        """Share of all slot-seconds without a turn, whatever the reason."""
        return 1 - self.busy_slot_seconds / (self.num_slots * self.seconds)


@dataclass(slots=True, eq=False)
class _Call:
    """One stream of answers."""

    requests: Sequence[GenerateRequest]
    finished: list[tuple[int, Completion | Refusal]] = field(default_factory=list)
    has_finished: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    """Nobody listens any more."""
    failure: str = ""


class SimulatedEngine:
    """Slots and a queue. Belongs to one event loop."""

    def __init__(
        self,
        *,
        num_slots: int,
        seconds_per_turn: float,
        answers: Sequence[Sequence[int]],
        refused_seeds: Sequence[int] = (),
        weight_version: int = 0,
    ) -> None:
        """Set up an idle engine.

        Args:
            num_slots: turns written at the same time.
            seconds_per_turn: each takes so long, whatever its length.
            answers: token ids, end-of-turn token included; ``seed % len(answers)`` is a request's.
            refused_seeds: requests of these seeds get a ``Refusal``.
            weight_version: of the first weights.
        """
        self._num_slots = num_slots
        self._seconds_per_turn = seconds_per_turn
        self._answers = tuple(tuple(answer) for answer in answers)
        self._refused = frozenset(refused_seeds)
        self._version = weight_version
        self._waiting: deque[tuple[_Call, int]] = deque()
        self._calls: set[_Call] = set()
        self._held: list[tuple[_Call, int]] = []  # for newer weights
        self._running: deque[tuple[float, _Call, int]] = deque()  # end, call, index
        self._updates: list[tuple[float, int]] = [(-math.inf, weight_version)]  # time, version
        self._engine_id = uuid.uuid4().hex
        self._progress_at = time.monotonic()
        self._seconds_queued = 0.0
        self._num_refused = 0
        self._num_requests = 0
        self._num_tokens = 0
        self._seconds_running = 0.0
        self._running_since = 0.0
        self.reset_clock()

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
        """Answer requests as ``PolicyEngine.generate`` does.

        Raises:
            EngineError: ``fail`` was called.
        """
        call = _Call(requests)
        self._calls.add(call)
        self._num_calls += 1
        for index, request in enumerate(requests):
            if request.seed in self._refused:
                self._num_refused += 1
                call.finished.append((index, Refusal(reason="this double refuses the seed")))
                call.has_finished.set()
            elif request.min_weight_version > self._version:
                self._held.append((call, index))
            else:
                self._waiting.append((call, index))
        self._start_waiting(asyncio.get_running_loop())
        left = len(requests)
        try:
            while left:
                await call.has_finished.wait()
                call.has_finished.clear()
                if call.failure:
                    raise EngineError(call.failure)
                finished, call.finished = call.finished, []
                left -= len(finished)
                self._num_yields += 1
                yield finished
        finally:
            call.is_over = True
            self._calls.discard(call)

    def fail(self, reason: str) -> None:
        """Fail all calls of this moment, as a real engine does when its core dies."""
        for call in self._calls:
            call.failure = reason
            call.has_finished.set()

    def update_weights(self, version: int) -> None:
        """Go on with other weights; requests that waited for them move up."""
        self._version = version
        now = time.monotonic()
        oldest_start = now - self._seconds_per_turn
        in_use = bisect.bisect(self._updates, oldest_start, key=operator.itemgetter(0)) - 1
        self._updates = [*self._updates[in_use:], (now, version)]
        held, self._held = self._held, []
        for call, index in held:
            is_new = call.requests[index].min_weight_version <= version
            (self._waiting if is_new else self._held).append((call, index))
        self._start_waiting(asyncio.get_running_loop())

    @property
    def stats(self) -> EngineStats:
        """Totals as a real engine gives them."""
        running = time.monotonic() - self._running_since if self._running else 0.0
        return EngineStats(
            engine_id=self._engine_id,
            replica_pid=os.getpid(),
            core_pids=(),
            weight_version=self._version,
            seconds_running=self._seconds_running + running,
            num_requests=self._num_requests,
            num_generated_tokens=self._num_tokens,
            num_refused=self._num_refused,
            seconds_queued=self._seconds_queued,
            prefix_query_tokens=0,
            prefix_hit_tokens=0,
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            kv_usage=len(self._running) / self._num_slots,
            seconds_since_progress=time.monotonic() - self._progress_at,
            replica_bytes=psutil.Process().memory_info().rss,
            core_bytes=0,
        )

    def reset_clock(self) -> None:
        """Begin a measurement."""
        self._clock_started = self._noted_at = time.monotonic()
        self._busy = self._starved = 0.0
        self._num_turns = self._num_calls = self._num_yields = 0
        self._cpu_started = time.process_time()

    @property
    def clock(self) -> SlotClock:
        """The measurement so far."""
        self._note(time.monotonic())
        return SlotClock(
            seconds=self._noted_at - self._clock_started,
            num_slots=self._num_slots,
            busy_slot_seconds=self._busy,
            starved_slot_seconds=self._starved,
            num_turns=self._num_turns,
            num_calls=self._num_calls,
            num_yields=self._num_yields,
            cpu_seconds=time.process_time() - self._cpu_started,
        )

    def _note(self, now: float) -> None:
        """Add the time since the last note; a slot that is over its time counts as empty."""
        since, self._noted_at = self._noted_at, now
        busy = 0.0
        for end, _, _ in self._running:  # in the order of their ends
            if end >= now:
                busy += (now - since) * (len(self._running) - self._num_over(now))
                break
            busy += max(0.0, end - since)
        self._busy += busy
        self._seconds_queued += (now - since) * len(self._waiting)
        if self._waiting:
            self._starved += (now - since) * self._num_slots - busy

    def _num_over(self, now: float) -> int:
        number = 0
        for end, _, _ in self._running:
            if end >= now:
                break
            number += 1
        return number

    def _start_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fill empty slots from the queue and set the timer if none was running."""
        now = time.monotonic()
        self._note(now)
        was_idle = not self._running
        end = now + self._seconds_per_turn
        while self._waiting and len(self._running) < self._num_slots:
            call, index = self._waiting.popleft()
            if not call.is_over:
                self._running.append((end, call, index))
        if was_idle and self._running:
            self._running_since = self._progress_at = now
            loop.call_later(self._seconds_per_turn, self._finish, loop)

    def _finish(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over what is due, fill the slots again and wait for the next end."""
        now = time.monotonic()
        self._note(now)
        while self._running and self._running[0][0] <= now:
            end, call, index = self._running.popleft()
            self._num_turns += 1
            self._num_requests += 1
            self._progress_at = now
            call.finished.append((index, self._answer(call.requests[index], end)))
            call.has_finished.set()
        is_idle = not self._running
        if is_idle:
            self._seconds_running += now - self._running_since
        else:
            loop.call_later(max(0.0, self._running[0][0] - now), self._finish, loop)
        self._start_waiting(loop)

    def _answer(self, request: GenerateRequest, end: float) -> Completion:
        ids = self._answers[request.seed % len(self._answers)]
        is_whole = len(ids) <= request.max_tokens
        written = ids if is_whole else ids[: request.max_tokens]
        self._num_tokens += len(written)
        return Completion(
            token_ids=written,
            rollout_logprobs=(LOGPROB,) * len(written),
            finish_reason="stop" if is_whole else "length",
            weight_versions=self._versions(len(written), end),
        )

    def _versions(self, num_tokens: int, end: float) -> tuple[int, ...]:
        """Return the version of each token, all of them written equally fast."""
        start = end - self._seconds_per_turn
        newest = self._updates[-1]
        if newest[0] <= start:
            return (newest[1],) * num_tokens
        times = [start + self._seconds_per_turn * (n + 1) / num_tokens for n in range(num_tokens)]
        return tuple(
            self._updates[bisect.bisect(self._updates, at, key=operator.itemgetter(0)) - 1][1]
            for at in times
        )


@ray_serve.deployment(
    num_replicas=1,
    max_ongoing_requests=10_000,
    health_check_period_s=5,
    health_check_timeout_s=30,
    graceful_shutdown_timeout_s=1,
)
class SimulatedDeployment:
    """Holds one ``SimulatedEngine`` and forwards to it."""

    async def __init__(
        self,
        *,
        num_slots: int,
        seconds_per_turn: float,
        answers: Sequence[Sequence[int]],
        refused_seeds: Sequence[int],
        seconds_to_start: float,
    ) -> None:
        await asyncio.sleep(seconds_to_start)  # what loading a model takes
        self._engine = SimulatedEngine(
            num_slots=num_slots,
            seconds_per_turn=seconds_per_turn,
            answers=answers,
            refused_seeds=refused_seeds,
        )

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
        """Forward to ``SimulatedEngine.generate``."""
        async for finished in self._engine.generate(requests):
            yield finished

    async def update_weights(self, manifest: WeightManifest) -> WeightReceipt:
        """Take the version of a manifest and look at no file."""
        self._engine.update_weights(manifest.version)
        return WeightReceipt(
            version=manifest.version,
            num_checks=0,
            worst_relative_error=0.0,
            seconds_read=0.0,
            seconds_load=0.0,
            seconds_check=0.0,
            error="",
            is_changed=True,
            is_broken=False,
        )

    async def stats(self) -> EngineStats:
        """Forward to ``SimulatedEngine.stats``."""
        return self._engine.stats

    async def clock(self) -> SlotClock:
        """Forward to ``SimulatedEngine.clock``."""
        return self._engine.clock

    async def reset_clock(self) -> None:
        """Forward to ``SimulatedEngine.reset_clock``."""
        self._engine.reset_clock()

    async def fail(self, reason: str) -> None:
        """Forward to ``SimulatedEngine.fail``."""
        self._engine.fail(reason)

    async def pid(self) -> int:
        """Return the replica's process, for whoever wants to kill it."""
        return os.getpid()


def deploy_simulated_engines(
    run_id: str,
    *,
    num_engines: int,
    num_slots: int,
    seconds_per_turn: float,
    answers: Sequence[Sequence[int]],
    refused_seeds: Sequence[int] = (),
    seconds_to_start: float = 0.0,
    num_cpus: float = 0.0,
    num_at_start: int | None = None,
    start_timeout_s: float = 60.0,
) -> PolicyEngines:
    """Start doubles in the place of a run's engines and return them when they run.

    ``seconds_to_start`` is also what a restart takes, and ``start_timeout_s`` the limit for what
    goes before it; ``num_cpus`` and ``num_at_start`` are those
    of ``deploy_engines``; the rest is told to ``SimulatedEngine``.
    """
    placed: dict[str, Any] = {"placement_group_bundles": [{"CPU": num_cpus}]} if num_cpus else {}
    application = SimulatedDeployment.options(
        ray_actor_options={"num_cpus": num_cpus}, **placed
    ).bind(
        num_slots=num_slots,
        seconds_per_turn=seconds_per_turn,
        answers=tuple(tuple(answer) for answer in answers),
        refused_seeds=tuple(refused_seeds),
        seconds_to_start=seconds_to_start,
    )
    return run_engines(
        application,
        run_id,
        num_engines=num_engines,
        num_at_start=num_at_start,
        bundle={"CPU": num_cpus},
        start_timeout_s=seconds_to_start + start_timeout_s,
        workers_per_engine=1,
    )
