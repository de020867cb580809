"""Writes a run's metrics to Parquet during the run, and passes them to its trackers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cast_ray.runs.metrics import StepMetrics, shown_name, write_metrics
from cast_ray.runs.tracking import Tracking


class MetricsLog:
    """The rows so far, in ``metrics.parquet`` and in trackers."""

    def __init__(self, path: Path, tracking: Tracking, *, rows: Sequence[StepMetrics] = ()) -> None:
        self._path = path
        self._tracking = tracking
        self.rows = list(rows)

    def append(self, row: StepMetrics) -> None:
        """Add one step.

        Raises:
            EnvironmentSetupError: the file cannot be written.
        """
        self.rows.append(row)
        self._write(row.step, asdict(row))

    def amend(self, step: int, **values: float) -> None:
        """Set values of a step that were unknown when its row was written.

        Raises:
            EnvironmentSetupError: the file cannot be written.
        """
        self.rows = [replace(row, **values) if row.step == step else row for row in self.rows]
        self._write(step, values)

    def row_of(self, step: int) -> StepMetrics | None:
        """Return a step's row; None if there is none yet."""
        return next((row for row in self.rows if row.step == step), None)

    def _write(self, step: int, values: Mapping[str, Any]) -> None:
        write_metrics(self._path, self.rows)
        self._tracking.metrics(step, dict(_known(values)))


def _known(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the measured values by the names that trackers show, lists item by item."""
    for name, value in values.items():
        if name == "step" or value is None:
            continue
        shown = shown_name(name)
        items = {shown: value}
        if isinstance(value, tuple):
            items = {f"{shown}/{index}": item for index, item in enumerate(value)}
        yield from ((key, float(item)) for key, item in items.items() if not math.isnan(item))
