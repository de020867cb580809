"""Hands a run's figures to Ray, whose agent on each node serves them to Prometheus.

Ray sends a gauge once for each time that it is set, every ten seconds, and its agent forgets one
that it has not heard of for twenty. So every look sets all of them anew. A figure that is not known
any more is set to NaN once, which the agent leaves out: nothing is served, neither 0 nor the old
value. A value costs 1.5 microseconds, and nothing waits for the agent, whether there is one or not.

The names under which a run's figures reach Prometheus, and what each of them says.

Ray puts ``ray_`` before every name, and ``_total`` behind those of counters. All carry the tag
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
    """One metric as Ray is told of it."""

    name: str
    description: str
    tags: tuple[str, ...] = ()
    """Beside the run's id."""
    kind: Literal["gauge", "counter"] = "gauge"

    @property
    def prometheus_name(self) -> str:
        """Return the name under which Prometheus finds it."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


STEP = ExportedMetric(name="cast_step", description="The last step that was taken")
RECOVERIES = ExportedMetric(
    name="cast_recoveries",
    description="Parts that were lost and came back since this driver began, by kind",
    tags=("kind",),
    kind="counter",
)
ENGINE_UP = ExportedMetric(
    name="cast_engine_up", description="1 where an engine answers, else 0", tags=("engine",)
)
ENGINE_RUNNING = ExportedMetric(
    name="cast_engine_running_requests",
    description="Requests computed with in the engine's last step",
    tags=("engine",),
)
ENGINE_WAITING = ExportedMetric(
    name="cast_engine_waiting_requests",
    description="Requests in the engine's queue",
    tags=("engine",),
)
ENGINE_KV_USAGE = ExportedMetric(
    name="cast_engine_kv_usage",
    description="Share of the engine's memory for keys and values in use",
    tags=("engine",),
)
ENGINE_SILENCE = ExportedMetric(
    name="cast_engine_seconds_since_progress",
    description="Seconds since the engine's last token; an idle one's grows",
    tags=("engine",),
)
ENGINE_VERSION = ExportedMetric(
    name="cast_engine_weight_version",
    description="Weights that the engine holds",
    tags=("engine",),
)
MEMORY = ExportedMetric(
    name="cast_process_memory_bytes",
    description="Resident memory of each of the run's processes",
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
ALL = (
    STEP,
    *STEP_METRICS.values(),
    RECOVERIES,
    ENGINE_UP,
    ENGINE_RUNNING,
    ENGINE_WAITING,
    ENGINE_KV_USAGE,
    ENGINE_SILENCE,
    ENGINE_VERSION,
    MEMORY,
)
"""Every metric of ours."""


class MetricsExporter:
    """Exports one run's figures; may be told of them by any thread."""

    def __init__(self, run_id: str) -> None:
        """Make all metrics known to Ray.

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
        """What is served: by the value of the metric's tag, an empty one where it has none."""

    def step(self, row: StepMetrics) -> None:
        """Export a step's row; a validation that is not there yet leaves the last one's figure."""
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
        """Export what the parts said at one moment, and all other figures once more.

        To be called at least every ten seconds, or the figures fade from Prometheus.
        """
        engines = {str(index): stats for index, stats in enumerate(look.engines)}
        present = {name: stats for name, stats in engines.items() if stats is not None}
        with self._lock:
            self._serve(ENGINE_UP, {name: float(name in present) for name in engines})
            for metric, field in _OF_ENGINES.items():
                self._serve(
                    metric, {name: float(getattr(stats, field)) for name, stats in present.items()}
                )
            self._serve(MEMORY, look.memory_bytes)
            for metric, values in self._values.items():
                self._set(metric, values)

    def recoveries(self, counts: Mapping[Kind, int]) -> None:
        """Export the recoveries since this driver began, by kind."""
        with self._lock:
            new = Counter(counts) - self._counted
            for kind, count in new.items():
                self._recoveries.inc(count, tags={"kind": kind})
            self._counted += new

    def _serve(self, metric: ExportedMetric, values: Mapping[str, float]) -> None:
        """Take up a metric's values; what is gone or NaN stops being served."""
        known = {name: value for name, value in values.items() if not math.isnan(value)}
        gone = self._values.get(metric, {}).keys() - known.keys()
        self._set(metric, known | dict.fromkeys(gone, math.nan))
        self._values[metric] = known

    def _set(self, metric: ExportedMetric, values: Mapping[str, float]) -> None:
        gauge = self._gauges[metric]
        for name, value in values.items():
            gauge.set(float(value), tags=dict.fromkeys(metric.tags, name))


_OF_ENGINES = {
    ENGINE_RUNNING: "num_running",
    ENGINE_WAITING: "num_waiting",
    ENGINE_KV_USAGE: "kv_usage",
    ENGINE_SILENCE: "seconds_since_progress",
    ENGINE_VERSION: "weight_version",
}
"""What is exported of ``EngineStats``."""
