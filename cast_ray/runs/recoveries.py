"""The parts of a run that were lost and recovered: ``recoveries.jsonl`` and counts for metrics."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cast_ray.files import append_line, read_records

Kind = Literal["environment", "oracle", "engine", "learner", "node", "driver"]
KINDS: tuple[Kind, ...] = ("environment", "oracle", "engine", "learner", "node", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One part that was lost and is working again."""

    utc: str
    """When it was working again, in ISO 8601."""
    kind: Kind
    what: str
    """Which one, and what is known about its end."""
    seconds: float
    """From noticing the loss until it was working again."""


def read_recoveries(path: Path) -> list[Recovery]:
    """Return all recoveries of a run, oldest first.

    Raises:
        DamagedFileError: a line is damaged.
    """
    return read_records(path, Recovery)


class RecoveryLog:
    """Records recoveries in ``recoveries.jsonl``, from any thread."""

    def __init__(self, path: Path, *, on_recovery: Callable[[str, float], None]) -> None:
        self._path = path
        self._on_recovery = on_recovery
        self._lock = threading.Lock()
        self.counts: Counter[Kind] = Counter()
        """Since this driver started."""

    def record(self, kind: Kind, what: str, seconds: float) -> None:
        """Record that a part is working again."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        recovery = Recovery(utc=now, kind=kind, what=what, seconds=seconds)
        with self._lock:
            append_line(self._path, json.dumps(asdict(recovery)))
            self.counts[kind] += 1
        self._on_recovery(f"{kind}: {what}", seconds)
