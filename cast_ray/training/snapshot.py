"""What a run's parts did between two looks, even if some were lost or replaced meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serve.messages import EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What all parts reported at one moment."""

    at: float
    """``time.monotonic``."""
    engines: tuple[EngineStats | None, ...]
    """None = no answer."""
    pool: Mapping[str, float]
    """Totals of ``RolloutPool.counters``."""
    lost_groups: int
    memory_bytes: Mapping[str, float]
    """By process: ``driver``, ``environment-0``, ``oracle-0``, ``engine-0``, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """What the engines did between two looks; fields are columns of the metrics, NaN = unknown."""

    seconds_generation: float
    """Of the busiest."""
    engine_busy_fractions: tuple[float, ...]
    engine_queue_mean: float
    """Requests that wait in an engine, over engines and looks."""
    engine_queue_max: float
    seconds_queueing: float
    prefix_hit_fraction: float


def engine_figures(looks: Sequence[Look]) -> EngineFigures:
    """Return the engines' figures over at least two looks.

    All looks are used: of an engine that was replaced, only what it did after its last look is
    missing.
    """
    wall = max(looks[-1].at - looks[0].at, 1e-9)
    engines = [_Engine() for _ in looks[0].engines]
    for look in looks:
        for engine, stats in zip(engines, look.engines, strict=True):
            if stats is not None:
                engine.add(stats)
    running = [math.nan if engine.latest is None else engine.seconds_running for engine in engines]
    requests = sum(engine.num_requests for engine in engines)
    queries = sum(engine.prefix_query_tokens for engine in engines)
    waiting = [stats.num_waiting for look in looks for stats in look.engines if stats is not None]
    return EngineFigures(
        seconds_generation=max((s for s in running if not math.isnan(s)), default=math.nan),
        engine_busy_fractions=tuple(seconds / wall for seconds in running),
        engine_queue_mean=sum(waiting) / len(waiting) if waiting else math.nan,
        engine_queue_max=float(max(waiting, default=math.nan)),
        seconds_queueing=(
            sum(engine.seconds_queued for engine in engines) / requests if requests else math.nan
        ),
        prefix_hit_fraction=(
            sum(engine.prefix_hit_tokens for engine in engines) / queries if queries else math.nan
        ),
    )


@dataclass(slots=True)
class _Engine:
    """What one engine did, across the processes that it was."""

    latest: EngineStats | None = None
    seconds_running: float = 0.0
    seconds_queued: float = 0.0
    num_requests: float = 0.0
    prefix_query_tokens: float = 0.0
    prefix_hit_tokens: float = 0.0

    def add(self, stats: EngineStats) -> None:
        """Add what the engine did since its last answer; if its process is new, since its start.

        The first answer adds nothing: its totals may be from long before.
        """
        if self.latest is not None:
            is_same = stats.engine_id == self.latest.engine_id
            for name in _TOTALS:
                since = getattr(stats, name) - (getattr(self.latest, name) if is_same else 0)
                setattr(self, name, getattr(self, name) + since)
        self.latest = stats


_TOTALS = (
    "seconds_running",
    "seconds_queued",
    "num_requests",
    "prefix_query_tokens",
    "prefix_hit_tokens",
)


def largest_mib(look: Look, role: str) -> float:
    """Return the memory of the largest process of a role; NaN where none is known."""
    sizes = [size for name, size in look.memory_bytes.items() if name.startswith(role)]
    return max(sizes, default=math.nan) / 2**20
