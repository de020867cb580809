"""Writes a run's metrics to Parquet and TensorBoard during the run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.summary import scalar

from cast_ray.files import refusals_named
from cast_ray.runs.metrics import StepMetrics, tensorboard_name, write_metrics


class MetricsLog:
    """The rows so far, in ``metrics.parquet`` and as TensorBoard events."""

    def __init__(self, path: Path, events_dir: Path, *, rows: Sequence[StepMetrics] = ()) -> None:
        self._path = path
        self.rows = list(rows)
        self._events_dir = events_dir
        # Not SummaryWriter: a full disk kills its thread, and later calls wait for it forever.
        with refusals_named(events_dir):
            events_dir.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(events_dir / "events"))

    def append(self, row: StepMetrics) -> None:
        """Add one step and update the files.

        Raises:
            EnvironmentSetupError: they cannot be written.
        """
        self.rows.append(row)
        self._write(row.step, asdict(row))

    def amend(self, step: int, **values: float) -> None:
        """Set values of a step that were unknown when its row was written.

        Raises:
            EnvironmentSetupError: the files cannot be written.
        """
        self.rows = [replace(row, **values) if row.step == step else row for row in self.rows]
        self._write(step, values)

    def row_of(self, step: int) -> StepMetrics | None:
        """Return a step's row; None if there is none yet."""
        return next((row for row in self.rows if row.step == step), None)

    def _write(self, step: int, values: Mapping[str, Any]) -> None:
        write_metrics(self._path, self.rows)
        with refusals_named(self._events_dir):
            for name, value in values.items():
                if name == "step" or value is None:
                    continue
                shown = tensorboard_name(name)
                items = {shown: value}
                if isinstance(value, tuple):
                    items = {f"{shown}/{index}": item for index, item in enumerate(value)}
                for key, item in items.items():
                    if not math.isnan(item):
                        self._writer.write_event(_event(step, key, float(item)))
            self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        with refusals_named(self._events_dir):
            self._writer.close()


def _event(step: int, name: str, value: float) -> Event:
    return Event(wall_time=time.time(), step=step, summary=scalar(name, value))
