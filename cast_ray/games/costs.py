"""What a cost-to-go can be: exact, infinite or unknown, and how each is stored.

A file holds an integer and a status; the integer is null unless the status is ``exact``.
Calculations use one float: ``inf`` = infinite, NaN = unknown.
"""

from __future__ import annotations

import math
from typing import Literal

EXACT, INFINITE, UNKNOWN = "exact", "infinite", "unknown"


def status_of(cost: float) -> str:
    """Return ``EXACT``, ``INFINITE`` or ``UNKNOWN`` for a cost as a float."""
    if math.isnan(cost):
        return UNKNOWN
    return INFINITE if math.isinf(cost) else EXACT


def stored_cost(cost: float) -> int | None:
    """Return the integer that is stored for a cost: None unless it is exact."""
    return int(cost) if math.isfinite(cost) else None


def cost_as_float(stored: int | None, status: str) -> float:
    """Return a stored cost as one float: ``inf`` = infinite, NaN = unknown."""
    if status == EXACT and stored is not None:
        return float(stored)
    return math.inf if status == INFINITE else math.nan


JsonCost = int | Literal["dead", "unknown"]
"""A cost as JSON has it."""


def json_cost(cost: float | None) -> JsonCost | None:
    """Return a number of moves, ``dead`` or ``unknown`` for a cost as a float; None stays None."""
    if cost is None:
        return None
    if math.isnan(cost):
        return "unknown"
    return "dead" if math.isinf(cost) else int(cost)
