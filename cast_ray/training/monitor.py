"""Polls a run's parts every two seconds: which ones answer, which recovered, how full queues are.

A part is lost if it does not answer, or if another process answers in its place; it has recovered
once that process answers. The learner is not polled: its callers notice a loss first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

import psutil
import ray
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from cast_ray.errors import CastRayError
from cast_ray.runs.recoveries import Kind, RecoveryLog
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.snapshot import Look
from cast_ray.training.workers import Workers

logger = logging.getLogger(__name__)

_EVERY_S = 2.0
_ANSWER_TIMEOUT_S = 5.0
_LOOKS_KEPT = 10_000


class RunMonitor:
    """A thread that polls the parts and records what was lost and has recovered."""

    def __init__(self, parts: Workers, recoveries: RecoveryLog, exporter: MetricsExporter) -> None:
        self._parts, self._recoveries, self._exporter = parts, recoveries, exporter
        self._watches: dict[str, _Watch] = {}
        self._nodes = _Nodes(recoveries)
        self._lock = threading.Lock()
        self._looks: list[Look] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monitor", daemon=True)
        self._thread.start()

    def look(self) -> Look:
        """Poll all parts now."""
        with self._lock:
            pool, actors = self._parts.pool, self._parts.pool.actors
            stats = self._parts.engines.stats(timeout_s=_ANSWER_TIMEOUT_S)
            pids = actors.refresh(timeout_s=_ANSWER_TIMEOUT_S)
            engines = {f"engine-{index}": one for index, one in enumerate(stats)}
            found: dict[str, object] = {**pids}
            found |= {name: one.engine_id for name, one in engines.items() if one is not None}
            self._judge(found)
            memory = {
                "driver": float(psutil.Process().memory_info().rss),
                **actors.resident_bytes(),
            }
            memory |= {
                name: float(one.replica_bytes + one.core_bytes)
                for name, one in engines.items()
                if one is not None
            }
            look = Look(
                at=time.monotonic(),
                engines=tuple(stats),
                pool=actors.totals(),
                lost_groups=pool.num_lost_groups,
                memory_bytes=memory,
            )
            self._looks = [*self._looks[-_LOOKS_KEPT:], look]
            self._exporter.look(look)
            self._exporter.recoveries(self._recoveries.counts)
            return look

    def looks_since(self, first: Look) -> list[Look]:
        """Return the looks from ``first`` on and forget earlier ones."""
        with self._lock:
            self._looks = [look for look in self._looks if look.at >= first.at]
            return list(self._looks)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=_EVERY_S + 3 * _ANSWER_TIMEOUT_S)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                self.look()
            except (RayError, RayServeException, CastRayError, ConnectionError) as error:
                # Ray or Serve does not answer now, or is shutting down: the job's own calls decide.
                logger.info("the monitor could not poll the run's parts: %s", error)

    def _judge(self, found: Mapping[str, object]) -> None:
        for name in {*self._watches, *found}:
            watch = self._watches.setdefault(name, _Watch(name, self._recoveries.record))
            watch.judge(found.get(name))
        self._nodes.judge(all(watch.is_there for watch in self._watches.values()))


class _Watch:
    """One part, across looks."""

    def __init__(self, name: str, record: Callable[[Kind, str, float], None]) -> None:
        self._name, self._record = name, record
        self._identity: object = None
        self._missing_since: float | None = None
        self._seen_at = time.monotonic()

    @property
    def is_there(self) -> bool:
        return self._missing_since is None

    def judge(self, identity: object | None) -> None:
        """Note which process answered by this part's name; None = none did."""
        now = time.monotonic()
        if identity is None:
            if self._missing_since is None:
                self._missing_since = now
            return
        if self._identity not in (None, identity):
            # If no look missed it, it was lost and recovered since the last one.
            lost_at = self._missing_since or self._seen_at
            kind: Kind = self._name.partition("-")[0]  # type: ignore[assignment]
            self._record(kind, f"{self._name} is another process", now - lost_at)
        self._identity, self._missing_since, self._seen_at = identity, None, now


class _Nodes:
    """The cluster's nodes: a lost one counts as recovered when every part of the run answers."""

    def __init__(self, recoveries: RecoveryLog) -> None:
        self._recoveries = recoveries
        self._alive: set[str] = set()
        self._lost: dict[str, float] = {}

    def judge(self, all_parts_there: bool) -> None:
        """Poll the cluster; ``all_parts_there``: every part of the run answers."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        for node in self._alive - alive:
            self._lost[node] = time.monotonic()
        self._alive = alive
        if all_parts_there:
            for node, lost_at in self._lost.items():
                # The parts of a lost node may still seem to answer at the first look.
                if time.monotonic() - lost_at > _ANSWER_TIMEOUT_S:
                    what = f"node {node[:8]} left"
                    self._recoveries.record("node", what, time.monotonic() - lost_at)
            self._lost = {
                node: at
                for node, at in self._lost.items()
                if time.monotonic() - at <= _ANSWER_TIMEOUT_S
            }
