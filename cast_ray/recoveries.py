"""What was lost in a run and came back, as its ``recoveries.jsonl`` tells it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
