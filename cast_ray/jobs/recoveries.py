"""What was lost and came back: one line in the log, one on disk, one count for the metrics."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from cast_ray.files import refusals_named
from cast_ray.recoveries import Kind, Recovery


class RecoveryLog:
    """Keeps recoveries in ``recoveries.jsonl``; may be told of them by any thread."""

    def __init__(self, path: Path, *, on_recovery: Callable[[str, float], None]) -> None:
        self._path = path
        self._on_recovery = on_recovery
        self._lock = threading.Lock()
        self.counts: Counter[Kind] = Counter()
        """Since this driver began."""

    def record(self, kind: Kind, what: str, seconds: float) -> None:
        """Write down that a part is back."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        recovery = Recovery(utc=now, kind=kind, what=what, seconds=seconds)
        with self._lock, refusals_named(self._path), open(self._path, "a") as file:
            file.write(json.dumps(asdict(recovery)) + "\n")
            self.counts[kind] += 1
        self._on_recovery(f"{kind}: {what}", seconds)
