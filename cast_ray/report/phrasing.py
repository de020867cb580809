"""Numbers as people read them: shares, durations, costs, credit. A minus sign is a real minus."""

from __future__ import annotations

import math

END_REASONS = {
    "solved": "solved",
    "deadlock": "deadlock",
    "turn_budget": "out of turns",
    "token_budget": "out of tokens",
    "truncated": "answer cut off",
    "lost": "lost by the rules",
}
"""The words for ``Trajectory.end_reason``; an unlisted reason is shown as it is stored."""

_INFINITE = {"minesweeper": "solver loses"}
_DEAD = "dead"


def percent(share: float, *, digits: int = 0) -> str:
    """Return a share as a percentage; halves of the last digit are rounded by Python's rule."""
    return f"{100 * share:.{digits}f}%"


def points(difference: float) -> str:
    """Return a difference of two shares in percentage points, with its sign."""
    return f"{signed(100 * difference, digits=1)} points"


def signed(value: float, *, digits: int = 0) -> str:
    """Return a number with its sign; no sign at zero."""
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"+{text}" if value > 0 else f"−{text}"


def duration(seconds: float) -> str:
    """Return a time in its two largest units: ``4.2 s``, ``8 min 43 s``, ``2 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def cost(cost_to_go: float, game: str) -> str:
    """Return a cost-to-go: a number of moves, the game's word for infinite, or ``unknown``."""
    if math.isnan(cost_to_go):
        return "unknown"
    return infinite(game) if math.isinf(cost_to_go) else f"{cost_to_go:.0f}"


def infinite(game: str) -> str:
    """Return the word for an infinite cost: a proof for most games, less for Minesweeper."""
    return _INFINITE.get(game, _DEAD)


def credit(shifted_advantage: float) -> str:
    """Return a shifted advantage in moves, or ``unknown``."""
    return "unknown" if math.isnan(shifted_advantage) else signed(shifted_advantage)


def end_reason(reason: str) -> str:
    """Return why an episode ended, in words."""
    return END_REASONS.get(reason, reason)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 step``, ``12 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
