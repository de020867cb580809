"""The hook: what a tracker is told, and of which run."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

from cast_ray.config.train import TrainConfig
from cast_ray.files import read_record, write_text

PROJECT = "cast_ray"
"""Of runs in trackers that put them together; their own variables give another."""
IDENTITY = "tracking.json"
"""File of the run directory; a copy of the run is another run and has none."""

_identifying = threading.Lock()


class _Identity(TypedDict):
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """What a tracker knows of a run before its first step."""

    directory: Path
    config: TrainConfig

    def identity(self) -> str:
        """Return the run's id in trackers, the same for all of them and after a resume."""
        path = self.directory / IDENTITY
        with _identifying:  # each tracker asks in a thread of its own
            if not path.is_file():
                write_text(path, json.dumps({"id": secrets.token_hex(4)}))
            return read_record(path, _Identity)["id"]


class Tracker(Protocol):
    """Shows one run. One thread makes it and calls it; whatever it raises switches it off."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Take values of a step, by name (``train/success``); some come after later steps."""
        ...

    def games(self, step: int, texts: Sequence[str]) -> None:
        """Take games that were played in a step."""
        ...

    def close(self, summary: Mapping[str, Any], *, failed: bool) -> None:
        """End; the summary is that of ``summary.json`` (Any: as there), empty without one."""
        ...
