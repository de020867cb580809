"""A run's metrics as TensorBoard events, in the run directory's ``tensorboard/``."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.summary import scalar, text

from cast_ray.config.reference import config_values
from cast_ray.runs.tracking.tracker import TrackedRun


class TensorBoard:
    """Writes every value at once, so that the page of a running experiment is up to date."""

    def __init__(self, run: TrackedRun) -> None:
        folder = run.directory / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        # Not SummaryWriter: a full disk kills its thread, and later calls wait for it forever.
        self._writer = EventsWriter(str(folder / "events"))
        values = [f"{key}: {value}" for key, value in config_values(run.config)]
        self._write(0, text("configuration", _as_it_is("\n".join(values))))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._write(step, *(scalar(name, value) for name, value in values.items()))

    def games(self, step: int, texts: Sequence[str]) -> None:
        """See ``Tracker``."""
        self._write(step, text("games", "\n\n---\n\n".join(map(_as_it_is, texts))))

    def close(self, summary: Mapping[str, Any], *, failed: bool) -> None:
        """See ``Tracker``."""
        if summary:
            shown = json.dumps(dict(summary), indent=2)
            self._write(summary["steps"], text("summary", _as_it_is(shown)))
        self._writer.close()

    def _write(self, step: int, *summaries: Any) -> None:  # Any: tensorboardX's messages
        for summary in summaries:
            self._writer.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()


def _as_it_is(lines: str) -> str:
    """Return what TensorBoard, which reads Markdown, shows as these lines."""
    return textwrap.indent(lines, "    ")
