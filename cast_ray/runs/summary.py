"""Reads what a run says of itself at its end: ``summary.json``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict, cast

from cast_ray.files import read_record
from cast_ray.statistics import Success


class _Summary(TypedDict, total=False):
    before: Success | None
    after: Success | None
    steps: int
    seconds: float
    code: str


def read_summary(path: Path) -> dict[str, Any]:
    """Return a ``summary.json``, its parts of the right types. Any: a JSON object.

    Raises:
        DamagedFileError: it is broken.
    """
    found = cast(dict[str, Any], read_record(path, _Summary))
    return found | {k: asdict(v) for k, v in found.items() if isinstance(v, Success)}
