"""Exports a run's metrics through Ray, whose agent on each node serves them to Prometheus.

Every ten seconds Ray sends the gauges that were set, and its agent drops a gauge that it has not
received for twenty seconds. So every look sets all gauges again. A value that is no longer known is
set to NaN once, which the agent does not serve: Prometheus gets neither 0 nor the old value.
Setting a value takes 1.5 microseconds and never waits for the agent.

Ray prefixes every name with ``ray_`` and appends ``_total`` to counters. All metrics carry the tag
``run``, the run's id.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ray.util import metrics as ray_metrics

from cast_ray.runs.metrics import METRICS, StepMetrics, metric_texts
from cast_ray.runs.recoveries import Kind
from cast_ray.training.snapshot import Look

RUN = "run"
STEP_PREFIX = "cast_step_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMetric:
    """One metric as declared to Ray."""

    name: str
    description: str
    tags: tuple[str, ...] = ()
    """In addition to the run's id."""
    kind: Literal["gauge", "counter"] = "gauge"

    @property
    def prometheus_name(self) -> str:
        """Return its name in Prometheus."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


STEP = ExportedMetric(name="cast_step", description="Last step taken")
RECOVERIES = ExportedMetric(
    name="cast_recoveries",
    description="Parts that were lost and recovered since this driver started, by kind",
    tags=("kind",),
    kind="counter",
)


def _of_engine(name: str, description: str) -> ExportedMetric:
    return ExportedMetric(name=f"cast_engine_{name}", description=description, tags=("engine",))


ENGINE_UP = _of_engine("up", "1 if the engine answers, else 0")
ENGINE_STATS = {
    "num_running": _of_engine("running_requests", "Requests in the engine's last step"),
    "num_waiting": _of_engine("waiting_requests", "Requests in the engine's queue"),
    "kv_usage": _of_engine("kv_usage", "Share of the engine's key-value cache in use"),
    "seconds_since_progress": _of_engine(
        "seconds_since_progress", "Seconds since the engine's last token; grows while it is idle"
    ),
    "weight_version": _of_engine("weight_version", "Version of the weights that the engine holds"),
}
"""The exported fields of ``EngineStats``."""
MEMORY = ExportedMetric(
    name="cast_process_memory_bytes",
    description="Resident memory of each process of the run",
    tags=("process",),
)
STEP_METRICS = {
    column: ExportedMetric(
        name=STEP_PREFIX + column,
        description=metric_texts()[column],
        tags=(metric.tag,) if metric.tag else (),
    )
    for column, metric in METRICS.items()
    if column != "step" and not column.startswith("recovered_")  # ``STEP`` and ``RECOVERIES``
}
"""The columns of ``StepMetrics``; a list has a tag for the place in it."""
ALL = (STEP, *STEP_METRICS.values(), RECOVERIES, ENGINE_UP, *ENGINE_STATS.values(), MEMORY)
"""Every metric that we export."""


class MetricsExporter:
    """Exports one run's metrics; thread-safe."""

    def __init__(self, run_id: str) -> None:
        """Declare all metrics to Ray.

        Args:
            run_id: the value of the tag ``run``.
        """
        self._gauges = {
            metric: ray_metrics.Gauge(metric.name, metric.description, (RUN, *metric.tags))
            for metric in ALL
            if metric.kind == "gauge"
        }
        self._recoveries = ray_metrics.Counter(
            RECOVERIES.name,
            RECOVERIES.description,
            (RUN, *RECOVERIES.tags),
        )
        for metric in (*self._gauges.values(), self._recoveries):
            metric.set_default_tags({RUN: run_id})
        self._lock = threading.Lock()
        self._counted: Counter[Kind] = Counter()
        self._values: dict[ExportedMetric, dict[str, float]] = {}
        """What is served, by the value of the metric's tag; empty if it has none."""

    def step(self, row: StepMetrics) -> None:
        """Export a step's row; without a validation the value of the last one stays."""
        with self._lock:
            self._serve(STEP, {"": float(row.step)})
        self.columns({name: getattr(row, name) for name in STEP_METRICS})

    def columns(self, values: Mapping[str, Any]) -> None:
        """Export columns of ``StepMetrics`` that were not known when the row was written."""
        with self._lock:
            for name, value in values.items():
                metric = STEP_METRICS[name]
                if isinstance(value, tuple):
                    self._serve(metric, {str(place): item for place, item in enumerate(value)})
                elif value is not None:
                    self._serve(metric, {"": float(value)})

    def look(self, look: Look) -> None:
        """Export what the parts reported, and all other values again.

        Call this at least every ten seconds, or the values disappear from Prometheus.
        """
        engines = {str(index): stats for index, stats in enumerate(look.engines)}
        present = {name: stats for name, stats in engines.items() if stats is not None}
        with self._lock:
            self._serve(ENGINE_UP, {name: float(name in present) for name in engines})
            for field, metric in ENGINE_STATS.items():
                self._serve(
                    metric, {name: float(getattr(stats, field)) for name, stats in present.items()}
                )
            self._serve(MEMORY, look.memory_bytes)
            for metric, values in self._values.items():
                self._set(metric, values)

    def recoveries(self, counts: Mapping[Kind, int]) -> None:
        """Export the recoveries since this driver started, by kind."""
        with self._lock:
            new = Counter(counts) - self._counted
            for kind, count in new.items():
                self._recoveries.inc(count, tags={"kind": kind})
            self._counted += new

    def _serve(self, metric: ExportedMetric, values: Mapping[str, float]) -> None:
        """Replace a metric's values; those that are missing or NaN are no longer served."""
        known = {name: value for name, value in values.items() if not math.isnan(value)}
        gone = self._values.get(metric, {}).keys() - known.keys()
        self._set(metric, known | dict.fromkeys(gone, math.nan))
        self._values[metric] = known

    def _set(self, metric: ExportedMetric, values: Mapping[str, float]) -> None:
        gauge = self._gauges[metric]
        for name, value in values.items():
            gauge.set(float(value), tags=dict.fromkeys(metric.tags, name))
