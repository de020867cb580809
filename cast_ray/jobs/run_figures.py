"""What a run's parts did between two looks at them; parts that were away or new are told apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serve.wire import EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What all parts said at one moment."""

    at: float
    """``time.monotonic``."""
    engines: tuple[EngineStats | None, ...]
    """None = it did not answer."""
    pool: Mapping[str, float]
    """Totals of ``RolloutPool.counters``."""
    lost_groups: int
    memory_bytes: Mapping[str, float]
    """By process: ``driver``, ``environment-0``, ``oracle-0``, ``engine-0``, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """What the engines did between two looks; NaN = nothing to tell it from."""

    seconds_running: float
    """Of the busiest."""
    busy_fractions: tuple[float, ...]
    seconds_queueing: float
    prefix_hit_fraction: float


def engine_figures(before: Look, after: Look) -> EngineFigures:
    """Return the engines' figures; one that was replaced counts from its own start."""
    wall = max(after.at - before.at, 1e-9)
    running: list[float] = []
    queueing = requests = queries = hits = 0.0
    for old, new in zip(before.engines, after.engines, strict=True):
        if new is None:
            running.append(math.nan)
            continue
        same = old is not None and old.engine_id == new.engine_id

        def since(name: str, old: EngineStats | None = old if same else None, new=new) -> float:
            return getattr(new, name) - (getattr(old, name) if old is not None else 0)

        running.append(since("seconds_running"))
        queueing += since("seconds_queued")
        requests += since("num_requests")
        queries += since("prefix_query_tokens")
        hits += since("prefix_hit_tokens")
    known = [seconds for seconds in running if not math.isnan(seconds)]
    return EngineFigures(
        seconds_running=max(known, default=math.nan),
        busy_fractions=tuple(seconds / wall for seconds in running),
        seconds_queueing=queueing / requests if requests else math.nan,
        prefix_hit_fraction=hits / queries if queries else math.nan,
    )


def largest_mib(look: Look, role: str) -> float:
    """Return the memory of the largest process of a role; NaN where none is known."""
    sizes = [size for name, size in look.memory_bytes.items() if name.startswith(role)]
    return max(sizes, default=math.nan) / 2**20


def queue_figures(looks: Sequence[Look]) -> tuple[float, float]:
    """Return mean and largest number of requests that wait in an engine; NaN without a look."""
    waiting = [
        engine.num_waiting for look in looks for engine in look.engines if engine is not None
    ]
    if not waiting:
        return math.nan, math.nan
    return sum(waiting) / len(waiting), float(max(waiting))
