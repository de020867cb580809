"""What a pool's actors have done and which processes they are, restarts included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from solver_actors.members import Members

_SIZES = ("memory_bytes", "resident_bytes")
"""Sizes: those of a dead process are gone with it."""


@dataclass(slots=True)
class _Known:
    """What is known of one actor."""

    pid: int = 0
    """0 = it has never answered."""
    latest: dict[str, float] = field(default_factory=dict)
    """As it last said, counted from its process's start."""
    earlier: dict[str, float] = field(default_factory=dict)
    """Of its processes before this one, as last heard."""


class ActorCounters:
    """Asks all actors of a pool; one that is dead or restarting keeps its last figures."""

    def __init__(self, environments: Members, oracles: Sequence[Any]) -> None:
        # Any: Ray's handles have the actor's methods, and .remote
        self._environments = environments
        self._oracles = {f"oracle-{index}": actor for index, actor in enumerate(oracles)}
        self._known: defaultdict[str, _Known] = defaultdict(_Known)

    def refresh(self, *, timeout_s: float) -> dict[str, int]:
        """Ask every actor that is there and return the pids of those that answer, by name.

        Args:
            timeout_s: for all of them together.
        """
        # One that is not there would keep the question until it is.
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
            except RayError:  # it died meanwhile, or is not back yet
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
