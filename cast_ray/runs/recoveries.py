"""What was lost in a run and came back, as its ``recoveries.jsonl`` tells it.

What was lost and came back: one line in the log, one on disk, one count for the metrics.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cast_ray.files import refusals_named

Kind = Literal["environment", "oracle", "engine", "learner", "node", "driver"]
KINDS: tuple[Kind, ...] = ("environment", "oracle", "engine", "learner", "node", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One part that was lost and is back."""

    utc: str
    """When it was back, in ISO 8601."""
    kind: Kind
    what: str
    """Which one, and what is known of its end."""
    seconds: float
    """From when its loss was noticed until it was back at work."""


def read_recoveries(path: Path) -> list[Recovery]:
    """Return all recoveries of a run, oldest first; none where there is no file.

    A last line that a killed driver left unfinished is left out.
    """
    if not path.is_file():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [Recovery(**json.loads(line)) for line in lines if line.endswith("\n")]


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
