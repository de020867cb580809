"""Hands a run's figures to Ray, whose agent on each node serves them to Prometheus.

Ray sends a gauge once for each time that it is set, every ten seconds, and its agent forgets one
that it has not heard of for twenty. So every look sets all of them anew. A figure that is not known
any more is set to NaN once, which the agent leaves out: nothing is served, neither 0 nor the old
value. A value costs 1.5 microseconds, and nothing waits for the agent, whether there is one or not.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ray.util import metrics as ray_metrics

from cast_ray.jobs import exported_metrics as table
from cast_ray.jobs.run_figures import Look
from cast_ray.metrics import StepMetrics
from cast_ray.recoveries import Kind


class MetricsExporter:
    """Exports one run's figures; may be told of them by any thread."""

    def __init__(self, run_id: str) -> None:
        """Make all metrics known to Ray.

        Args:
            run_id: the value of the tag ``run``.
        """
        self._gauges = {
            metric: ray_metrics.Gauge(metric.name, metric.description, (table.RUN, *metric.tags))
            for metric in table.ALL
            if metric.kind == "gauge"
        }
        self._recoveries = ray_metrics.Counter(
            table.RECOVERIES.name,
            table.RECOVERIES.description,
            (table.RUN, *table.RECOVERIES.tags),
        )
        for metric in (*self._gauges.values(), self._recoveries):
            metric.set_default_tags({table.RUN: run_id})
        self._lock = threading.Lock()
        self._counted: Counter[Kind] = Counter()
        self._values: dict[table.ExportedMetric, dict[str, float]] = {}
        """What is served: by the value of the metric's tag, an empty one where it has none."""

    def step(self, row: StepMetrics) -> None:
        """Export a step's row; a validation that is not there yet leaves the last one's figure."""
        with self._lock:
            self._serve(table.STEP, {"": float(row.step)})
        self.columns({name: getattr(row, name) for name in table.STEP_COLUMNS})

    def columns(self, values: Mapping[str, Any]) -> None:
        """Export columns of ``StepMetrics`` that were not known when the row was written."""
        with self._lock:
            for name, value in values.items():
                metric = table.STEP_METRICS[name]
                if isinstance(value, tuple):
                    self._serve(metric, {str(place): item for place, item in enumerate(value)})
                elif value is not None:
                    self._serve(metric, {"": float(value)})

    def look(self, look: Look) -> None:
        """Export what the parts said at one moment, and all other figures once more.

        To be called at least every ten seconds, or the figures fade from Prometheus.
        """
        engines = {str(index): stats for index, stats in enumerate(look.engines)}
        present = {name: stats for name, stats in engines.items() if stats is not None}
        with self._lock:
            self._serve(table.ENGINE_UP, {name: float(name in present) for name in engines})
            for metric, field in _OF_ENGINES.items():
                self._serve(
                    metric, {name: float(getattr(stats, field)) for name, stats in present.items()}
                )
            self._serve(table.MEMORY, look.memory_bytes)
            for metric, values in self._values.items():
                self._set(metric, values)

    def recoveries(self, counts: Mapping[Kind, int]) -> None:
        """Export the recoveries since this driver began, by kind."""
        with self._lock:
            new = Counter(counts) - self._counted
            for kind, count in new.items():
                self._recoveries.inc(count, tags={"kind": kind})
            self._counted += new

    def _serve(self, metric: table.ExportedMetric, values: Mapping[str, float]) -> None:
        """Take up a metric's values; what is gone or NaN stops being served."""
        known = {name: value for name, value in values.items() if not math.isnan(value)}
        gone = self._values.get(metric, {}).keys() - known.keys()
        self._set(metric, known | dict.fromkeys(gone, math.nan))
        self._values[metric] = known

    def _set(self, metric: table.ExportedMetric, values: Mapping[str, float]) -> None:
        gauge = self._gauges[metric]
        for name, value in values.items():
            gauge.set(float(value), tags=dict.fromkeys(metric.tags, name))


_OF_ENGINES = {
    table.ENGINE_RUNNING: "num_running",
    table.ENGINE_WAITING: "num_waiting",
    table.ENGINE_KV_USAGE: "kv_usage",
    table.ENGINE_SILENCE: "seconds_since_progress",
    table.ENGINE_VERSION: "weight_version",
}
"""What is exported of ``EngineStats``."""
