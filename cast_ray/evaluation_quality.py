"""How evaluated models play, by the solver, and what it takes: means over attempts and turns.

Letter: ``T`` turns of an attempt.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cast_ray.attempts import Attempt
from cast_ray.play_quality import first_fatal_turn, has_regret, optimal_turns, turn_regrets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayQuality:
    """None where a figure is not defined (a benchmark's regret) or unknown (an unset price)."""

    mean_regret: float | None
    """Moves wasted against the best action, over the turns that have a regret."""
    optimal_share: float | None
    """In [0, 1], of the turns before which something could be won."""
    fatal_share: float | None
    """In [0, 1], of attempts: with a move after which nothing could be won."""
    median_fatal_turn: float | None
    """Number of the first such turn, from 1, over the attempts that have one."""
    excess_turns: float | None
    """Turns used on solved puzzles, less what the solver needs; a mean."""
    excess_risk: float | None
    """Minesweeper: how much likelier a mine was in the revealed cell than in the safest one; mean
    over reveals."""
    safe_share: float | None
    """In [0, 1], of reveals: into a provably safe cell."""
    turns: float | None
    """Of an attempt; a mean, as the next four."""
    answer_tokens: float | None
    """Of an attempt."""
    answer_tokens_a_turn: float | None
    prompt_tokens: float | None
    """Of an attempt, all its requests together."""
    seconds: float | None
    """Of an attempt."""
    price_usd: float | None
    """Of all attempts together."""
    num_retries: int
    """Likewise."""


def play_quality(attempts: Sequence[Attempt]) -> PlayQuality:
    """Return how well and how dearly was played; order of ``attempts`` does not matter."""
    fatal_turns = [turn for one in attempts for turn in _fatal_turn(one)]
    first_turns = [turn for turn in fatal_turns if turn is not None]
    num_turns = sum(len(one.effects) for one in attempts)
    tokens = _total(count for one in attempts for count in one.answer_tokens)
    risks = [risk for one in attempts for risk in one.excess_risks]
    safe = [is_safe for one in attempts for is_safe in one.safe_reveals]
    return PlayQuality(
        mean_regret=_mean(regret for one in attempts for regret in _regrets(one)),
        optimal_share=_mean(
            is_optimal for one in attempts for is_optimal in optimal_turns(one.costs, game=one.game)
        ),
        fatal_share=_mean(turn is not None for turn in fatal_turns),
        median_fatal_turn=float(statistics.median(first_turns)) if first_turns else None,
        excess_turns=_mean(_excess_turns(one) for one in attempts),
        excess_risk=_mean(risks),
        safe_share=_mean(safe),
        turns=_ratio(num_turns, len(attempts)),
        answer_tokens=_ratio(tokens, len(attempts)),
        answer_tokens_a_turn=_ratio(tokens, num_turns),
        prompt_tokens=_ratio(_total(one.prompt_tokens for one in attempts), len(attempts)),
        seconds=_mean(one.seconds for one in attempts),
        price_usd=_total(one.price_usd for one in attempts),
        num_retries=sum(one.num_retries for one in attempts),
    )


def _regrets(attempt: Attempt) -> list[int | None]:
    return turn_regrets(attempt.costs, attempt.effects, game=attempt.game)


def _fatal_turn(attempt: Attempt) -> list[int | None]:
    """Return [number of the first fatal turn, from 1], [None] without one, [] where it is unknown.

    In Minesweeper K is that of the true board, so an infinite one says nothing of the player.
    """
    if not has_regret(attempt.game):
        return []
    turn = first_fatal_turn(attempt.costs)
    if turn is not None:
        return [turn + 1]
    return [] if any(math.isnan(cost) for cost in attempt.costs) else [None]


def _excess_turns(attempt: Attempt) -> float | None:
    needed = attempt.costs[0]
    if not attempt.is_success or not has_regret(attempt.game) or not math.isfinite(needed):
        return None
    return len(attempt.effects) - needed


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is defined; None where nothing is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None where one is unknown, or there is none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return math.fsum(known) if known and len(known) == len(found) else None


def _ratio(value: float | None, count: int) -> float | None:
    return value / count if value is not None and count else None
