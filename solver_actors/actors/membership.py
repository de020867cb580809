"""The env runners of a pool: which are available, how many groups each has, and what they did.

An actor is available once it has answered. One whose node is missing, or that is being restarted,
gets no group, and the others continue. Counters cover an actor's earlier processes, too.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError

from cast_ray.errors import ActorLostError

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 4.0


@dataclass(slots=True, eq=False)
class Member:
    """One env runner."""

    name: str
    actor: Any  # Ray's handles have the actor's methods, and .remote
    num_groups: int = 0
    """How many it is playing."""
    is_there: bool = False
    ping_at: float | None = None
    """When it is pinged again, as ``time.monotonic``; None = no need, or a ping is unanswered."""
    num_silent: int = 0
    """Pings in a row that failed."""
    is_lost: bool = False
    """Whether Ray does not restart it any more."""


class Membership:
    """Gives groups to the available member with the fewest. Not thread-safe."""

    def __init__(
        self,
        *,
        groups_per_actor: int,
        on_answer: Callable[[Member, Any], None],
    ) -> None:
        """Begin without members.

        Args:
            groups_per_actor: most that one gets at a time.
            on_answer: called with each answer, from a thread of Ray; pass it to ``on_ping``.
        """
        self._groups_per_actor, self._on_answer = groups_per_actor, on_answer
        self._all: list[Member] = []
        self._lost: list[str] = []  # names and reasons

    def add(self, actor: Any) -> None:  # Any: Ray's handle has the actor's methods, and .remote
        """Add an actor, which need not run yet; it is available once it has answered."""
        member = Member(f"environment-{len(self._all)}", actor)
        self._all.append(member)
        self._ask(member)

    def __iter__(self) -> Iterator[Member]:
        """Return an iterator over all members."""
        return iter(tuple(self._all))

    @property
    def num_members(self) -> int:
        """How many there are, available or not."""
        return len(self._all)

    @property
    def num_there(self) -> int:
        """How many are available."""
        return sum(member.is_there for member in self._all)

    def next_free(self) -> Member | None:
        """Return the member that plays the next group; None while none can take one."""
        there = [member for member in self._all if member.is_there]
        idlest = min(there, key=lambda member: member.num_groups, default=None)
        if idlest is None or idlest.num_groups >= self._groups_per_actor:
            return None
        return idlest

    def check_enough(self, count: int) -> None:
        """Raise ActorLostError if ``count`` members can never be available together."""
        if len(self._all) - len(self._lost) < count and self._lost:
            raise ActorLostError(
                f"{len(self._lost)} of {len(self._all)} env runners did not start: see "
                f"the log of {self._lost[-1]}"
            )

    def suspect(self, member: Member) -> None:
        """Give a member no group until it has answered a ping: it lost one."""
        if member.is_there:
            member.is_there = False
            member.ping_at = time.monotonic()

    @property
    def next_ping(self) -> float:
        """When the next ping is due, as ``time.monotonic``; infinite = none is planned."""
        return min((one.ping_at for one in self._all if one.ping_at is not None), default=math.inf)

    def ping_due(self) -> None:
        """Ping the members whose time has come."""
        now = time.monotonic()
        for member in self._all:
            if member.ping_at is not None and member.ping_at <= now:
                self._ask(member)

    def on_ping(self, member: Member, answer: Any) -> None:
        """Note that a member is available, is not yet, or never will be again.

        Raises:
            ActorLostError: it was the last one.
        """
        try:
            answer.result(timeout=0)
        except ActorDiedError as error:
            self._drop(member, error)
        except RayError:  # it is being started again
            pause = min(_FIRST_PAUSE_S * 2**member.num_silent, _LONGEST_PAUSE_S)
            member.ping_at = time.monotonic() + pause
            member.num_silent += 1
        else:
            member.is_there, member.num_silent = True, 0

    def _drop(self, member: Member, error: ActorDiedError) -> None:
        member.is_lost = True
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self._lost.append(f"{member.name} ({reason})")
        logger.warning("%s will not be restarted: %s", member.name, reason)
        if all(one.is_lost for one in self._all):
            raise ActorLostError(
                f"no env runner is left: see the log of {self._lost[-1]}"
            ) from error

    def _ask(self, member: Member) -> None:
        member.ping_at = None
        # Ray must not repeat it: it would report each time on the terminal. An actor that has no
        # place yet keeps the call.
        answer = member.actor.counters.remote().future()
        answer.add_done_callback(lambda done: self._on_answer(member, done))


_SIZES = ("memory_bytes", "resident_bytes")
"""These do not outlive a process."""


@dataclass(slots=True)
class _Known:
    """What is known of one actor."""

    pid: int = 0
    """0 = it has never answered."""
    latest: dict[str, float] = field(default_factory=dict)
    """As last reported, since the start of its process."""
    earlier: dict[str, float] = field(default_factory=dict)
    """Of its earlier processes, as last reported."""


class ActorCounters:
    """Asks all actors of a pool; one that is dead or restarting keeps its last figures."""

    def __init__(self, environments: Membership, oracles: Sequence[Any]) -> None:
        # Any: Ray's handles have the actor's methods, and .remote
        self._environments = environments
        self._oracles = {f"oracle-{index}": actor for index, actor in enumerate(oracles)}
        self._known: defaultdict[str, _Known] = defaultdict(_Known)

    def refresh(self, *, timeout_s: float) -> dict[str, int]:
        """Ask every available actor; return the process ids of those that answer, by name.

        Args:
            timeout_s: for all of them together.
        """
        # An actor that is not available would keep the call until it is.
        there = {member.name: member.actor for member in self._environments if member.is_there}
        asked = {
            actor.counters.options(max_task_retries=0).remote(): name
            for name, actor in (there | self._oracles).items()
        }
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s)
        pids = {}
        for answer in ready:
            try:
                counters = ray.get(answer, timeout=timeout_s)
            except RayError:  # it has died, or is restarting
                continue
            pids[asked[answer]] = self._note(asked[answer], counters)
        return pids

    def totals(self) -> dict[str, float]:
        """Return the sums over all actors, as of the last ``refresh``."""
        totals: dict[str, float] = {}
        for known in self._known.values():
            for counters in (known.earlier, known.latest):
                for name, value in counters.items():
                    totals[name] = totals.get(name, 0) + value
        return totals

    def resident_bytes(self) -> dict[str, float]:
        """Return the memory of each actor's process by name, as of the last ``refresh``."""
        return {
            name: known.latest["resident_bytes"]
            for name, known in self._known.items()
            if known.latest
        }

    def _note(self, name: str, counters: dict[str, float]) -> int:
        pid = int(counters.pop("pid"))
        known = self._known[name]
        if known.pid not in (0, pid):
            for counter, value in known.latest.items():
                if counter not in _SIZES:
                    known.earlier[counter] = known.earlier.get(counter, 0) + value
        known.pid, known.latest = pid, counters
        return pid
