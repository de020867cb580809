"""Numbers and reasons as people read them: shares, durations. A minus sign is a real minus."""

from __future__ import annotations

import math
from dataclasses import replace

from cast_ray.envs.registry import BENCHMARKS
from cast_ray.games import find_game
from cast_ray.games.wording import OF_REWARDS, GameWording


def words_of(game: str, oracle: str = "exact") -> GameWording:
    """Return the words for a game or benchmark; the default ones if it is not installed here.

    Args:
        game: its name.
        oracle: what gave the turns their credit.
    """
    if oracle in ("turn_reward", "none"):
        return OF_REWARDS if oracle == "turn_reward" else replace(OF_REWARDS, judge="")
    found = BENCHMARKS.get(game) or find_game(game)
    return GameWording() if found is None else found.wording


END_REASONS = {
    "solved": "solved",
    "deadlock": "deadlock",
    "turn_budget": "out of turns",
    "token_budget": "out of tokens",
    "truncated": "answer cut off",
    "no_answer": "no answer from the endpoint",
}
"""The words for the end reason of an episode, but ``lost``; others are shown as they are stored."""

UNKNOWN = "–"
"""What stands for a figure that nothing measured."""


def percent(share: float, *, digits: int = 0) -> str:
    """Return a share as a percentage, rounded as Python does; ``–`` if it is not finite."""
    return f"{100 * share:.{digits}f}%" if math.isfinite(share) else UNKNOWN


def points(difference: float) -> str:
    """Return a difference of two shares in percentage points, with its sign."""
    return f"{signed(100 * difference, digits=1)} points"


def signed(value: float, *, digits: int = 0) -> str:
    """Return a number with its sign; no sign at zero."""
    text = f"{abs(value):.{digits}f}"
    sign = "" if float(text) == 0 else "+" if value > 0 else "−"
    return f"{sign}{text}" if math.isfinite(value) else UNKNOWN


def duration(seconds: float) -> str:
    """Return a time in its two largest units: ``4.2 s``, ``8 min 43 s``; ``–`` if not finite."""
    if not math.isfinite(seconds):
        return UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def end_reason(reason: str, game: str) -> str:
    """Return why an episode ended, in the game's words."""
    if reason == "lost":
        return words_of(game).lost
    return END_REASONS.get(reason, reason)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 step``, ``12 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
