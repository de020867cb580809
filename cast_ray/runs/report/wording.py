"""Numbers as people read them: shares, durations, costs, credit. A minus sign is a real minus.

The words in which games differ: what the cost counts, and what an infinite one means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GameWording:
    """What the report says of one game; the defaults suit a game whose infinite is a proof."""

    letter: str = "N"
    """The cost-to-go, as the paper calls it."""
    unit: str = "move"
    infinite: str = "dead"
    """An infinite cost."""
    infinite_style: str = "dead"
    """CSS class of an infinite cost: only a proof is marked as the end."""
    lost: str = "lost by the rules"
    """The end reason ``lost``."""
    meaning: str = "the board’s cost-to-go by the exact solver"
    """What the letter stands for."""
    along_game: str = (
        "the moves that the best player would still need. Dead means that no move can win any more."
    )
    of_start: str = "the moves that the best player needs."
    one_away: str = "one move away"
    to_infinite: str = "; a move that kills the board costs all of N"
    """What a turn from a finite to an infinite cost earns; empty where none can occur."""
    from_infinite: str = ""
    """What a rescue earns, if it earns anything; empty where infinite is a proof."""
    harmful: str = "it led away from it, or lost it for good"
    mean_advantage: str = "Moves gained by a turn; 1 would be optimal play."
    failures: str = "Ended because the solver proved that no win is left, or by the rules."
    """How an episode is lost before its end; empty where it cannot be."""


_DEFAULT = GameWording()
_GAMES = {
    "minesweeper": GameWording(
        letter="K",
        unit="reveal",
        infinite="solver loses",
        infinite_style="loses",
        lost="hit a mine",
        meaning=(
            "the number of reveals that the peek-free solver would still need on this board, and "
            "1 more for each flag on a safe cell"
        ),
        along_game=(
            "the reveals that the peek-free solver would still need. “Solver loses” means that it "
            "would hit a mine from there: no proof, because another guess may win."
        ),
        of_start=(
            "the reveals that the peek-free solver needs. Boards on which it loses are left out."
        ),
        one_away="a flag on a safe cell",
        to_infinite="; a turn to a mine, or to a board on which the solver loses, costs all of K",
        from_infinite=(
            "; a guess that comes out well where the solver loses earns the K it leads to, and "
            "if it wins the number of safe cells"
        ),
        harmful=(
            "it put a flag on a safe cell, or led from where the solver wins to a mine or to where "
            "it loses"
        ),
        mean_advantage="Reveals gained by a turn; the solver’s own play gains 1.",
        failures="Ended because a mine was hit.",
    ),
    "rush_hour": GameWording(
        unit="slide",
        along_game="the slides that the best player would still need.",
        of_start="the slides that the best player needs.",
        one_away="one slide away",
        to_infinite="",
        harmful="it led away from it",
        mean_advantage="Slides gained by a turn; 1 would be optimal play.",
        failures="",
    ),
    "webshop": GameWording(lost="bought something else"),
}


def words_of(game: str) -> GameWording:
    """Return the words for a game; the default ones for a game that was added."""
    return _GAMES.get(game, _DEFAULT)


END_REASONS = {
    "solved": "solved",
    "deadlock": "deadlock",
    "turn_budget": "out of turns",
    "token_budget": "out of tokens",
    "truncated": "answer cut off",
}
"""The words for ``Trajectory.end_reason``, but ``lost``; others are shown as they are stored."""


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


def written(value: float, write: Callable[[float], str], *, unknown: str = "") -> str:
    """Return a value in words; ``unknown`` for NaN, which was not measured."""
    return unknown if math.isnan(value) else write(value)


def tiny(value: float) -> str:
    """Return a small number by its order of magnitude: ``2e−16``, ``0``."""
    return "0" if value == 0 else f"{value:.0e}".replace("e-", "e−")


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
    return words_of(game).infinite if math.isinf(cost_to_go) else f"{cost_to_go:.0f}"


def credit(shifted_advantage: float) -> str:
    """Return a shifted advantage in moves, or ``unknown``."""
    return "unknown" if math.isnan(shifted_advantage) else signed(shifted_advantage)


def end_reason(reason: str, game: str) -> str:
    """Return why an episode ended, in the game's words."""
    if reason == "lost":
        return words_of(game).lost
    return END_REASONS.get(reason, reason)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 step``, ``12 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
