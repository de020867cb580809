"""Sends the requests of many episodes to a run's engines: tokens in, tokens out.

An episode stays with the engine that holds its prefix, unless that engine is overloaded and another
is not. Requests that a failed engine did not answer are repeated with the same seed, which gives
the same answer, so an episode does not notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from ray import serve as ray_serve
from ray.serve.handle import DeploymentHandle

from cast_ray.errors import EngineError, RemoteTimeout
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from serve.client.link import Ask, EngineLink

_OVERRUN = 1.25
"""An engine with this many times more requests than slots hands episodes over to another."""
_FEWER = 0.5
"""The other engine must have less than this share of its requests: recomputing a prefix costs more
than a short wait."""


_MAX_FAILURES = 8
"""A request with which this many engines fail is itself the cause."""


def home_engines(number: int, *, num_clients: int, num_engines: int) -> Sequence[int]:
    """Return the engines that a client's episodes begin with.

    A share of them if they can be divided evenly: turns that are ready together then go to one
    engine instead of all, which halves the cost of a turn with as many clients as engines.
    """
    if num_clients % num_engines == 0:
        return [number % num_engines]
    if num_engines % num_clients == 0:
        return range(number, num_engines, num_clients)
    return range(num_engines)


def clients_of_an_engine(*, num_clients: int, num_engines: int) -> int:
    """Return how many clients' episodes begin at one engine; see ``home_engines``."""
    shares = {"num_clients": num_clients, "num_engines": num_engines}
    return sum(0 in home_engines(number, **shares) for number in range(num_clients))


class PolicyClient:
    """Generates with a run's engines. Belongs to one event loop; is a ``Generate``."""

    def __init__(
        self,
        handles: Sequence[DeploymentHandle],
        *,
        home: Sequence[int] = (),
        expected: Collection[str] = (),
        slots_per_engine: int,
        timeout_s: float,
        recovery_timeout_s: float,
    ) -> None:
        """Prepare a client.

        Args:
            handles: one for each engine, in an order that all clients share.
            home: numbers of the engines that episodes begin with; empty = all.
            expected: names of those that have not started yet; they get no requests until they
                answer.
            slots_per_engine: this client's share of the requests that an engine runs together.
            timeout_s: an engine that is up and writes nothing for this long has stalled.
            recovery_timeout_s: how long a request waits for an engine to recover.
        """
        self._links = [
            EngineLink(
                handle,
                is_up=handle.app_name not in expected,
                slots=slots_per_engine,
                timeout_s=timeout_s,
                recovery_timeout_s=recovery_timeout_s,
                on_failed=self._ask_again,
                on_return=self._unpark,
            )
            for handle in handles
        ]
        self._home = tuple(home) or tuple(range(len(handles)))
        self._slots = slots_per_engine
        self._recovery_timeout_s = recovery_timeout_s
        self._parked: dict[Ask, None] = {}  # in order
        self._num_requests = 0
        self._num_retries = 0
        self._num_overflows = 0

    async def __call__(self, request: GenerateRequest, lane: Lane) -> Completion:
        """Return the answer to one request.

        Args:
            request: what to answer.
            lane: of its episode; records which engine was asked.

        Raises:
            RemoteTimeout: no engine recovered in time, or one stalled.
            EngineError: the engine refuses the request, or fails with it repeatedly.
            WeightSyncError: the engine does not trust its weights.
        """
        self._num_requests += 1
        ask = Ask(request, lane, asyncio.get_running_loop().create_future())
        self._send(ask)
        return await ask.answer

    def counters(self) -> Mapping[str, float]:
        """Return totals since the start.

        ``num_retries`` counts requests that were repeated because their engine failed;
        ``num_overflows`` counts moves of an episode away from an overloaded engine.
        """
        return {
            "num_requests": self._num_requests,
            "num_calls": sum(link.num_calls for link in self._links),
            "num_retries": self._num_retries,
            "num_overflows": self._num_overflows,
            "num_engine_failures": sum(link.num_failures for link in self._links),
        }

    def _send(self, ask: Ask) -> None:
        engine = self._choose(ask.lane)
        if engine is None:
            self._park(ask)
        else:
            ask.lane.engine = engine
            self._links[engine].send(ask)

    def _choose(self, lane: Lane) -> int | None:
        """Return the engine to ask, or None while all are down."""
        home = self._home[lane.group % len(self._home)]
        pinned = home if lane.engine is None else lane.engine
        up = [number for number, link in enumerate(self._links) if link.is_up]
        if not up:
            return None
        idlest = min(up, key=lambda number: self._links[number].num_outstanding)
        if pinned not in up:
            return idlest
        load = self._links[pinned].num_outstanding
        if load <= _OVERRUN * self._slots:
            return pinned
        if self._links[idlest].num_outstanding >= _FEWER * load:
            return pinned
        self._num_overflows += 1
        return idlest

    def _ask_again(self, asks: Sequence[Ask]) -> None:
        """Take back what a failed engine did not answer, and send it to one that is up."""
        now = asyncio.get_running_loop().time()
        for ask in asks:
            if ask.failed_at is None:
                ask.failed_at = now
            is_late = now - ask.failed_at >= self._recovery_timeout_s
            if is_late or ask.num_failures >= _MAX_FAILURES:
                self._abandon(ask)
                continue
            self._num_retries += 1
            self._send(ask)

    def _park(self, ask: Ask) -> None:
        """Keep a request until an engine is up, up to the recovery time-out."""
        loop = asyncio.get_running_loop()
        if ask.failed_at is None:
            ask.failed_at = loop.time()
        self._parked[ask] = None
        loop.call_at(ask.failed_at + self._recovery_timeout_s, self._expire, ask)

    def _unpark(self) -> None:
        parked, self._parked = self._parked, {}
        for ask in parked:
            if not ask.answer.done():
                self._send(ask)

    def _expire(self, ask: Ask) -> None:
        if ask in self._parked:
            del self._parked[ask]
            self._abandon(ask)

    def _abandon(self, ask: Ask) -> None:
        if ask.answer.done():
            return
        failures = "; ".join(str(link.last_failure) for link in self._links if link.last_failure)
        if ask.num_failures >= _MAX_FAILURES:
            ask.answer.set_exception(
                EngineError(f"engines failed {ask.num_failures} times with a request: {failures}")
            )
            return
        ask.answer.set_exception(
            RemoteTimeout(
                f"no engine could answer within {self._recovery_timeout_s:g} s of its failure "
                f"({failures}); see the engines' logs"
            )
        )


def connect_policy(
    app_names: Sequence[str],
    number: int = 0,
    *,
    num_clients: int = 1,
    expected: Collection[str] = (),
    slots_per_engine: int,
    timeout_s: float,
    recovery_timeout_s: float,
) -> PolicyClient:
    """Return a client of these engines; call it in the event loop that will use the client.

    ``number`` of ``num_clients`` says which client this is of those that share the engines. The
    other arguments are those of ``PolicyClient``.
    """
    return PolicyClient(
        [ray_serve.get_app_handle(name) for name in app_names],
        home=home_engines(number, num_clients=num_clients, num_engines=len(app_names)),
        expected=expected,
        slots_per_engine=slots_per_engine,
        timeout_s=timeout_s,
        recovery_timeout_s=recovery_timeout_s,
    )
