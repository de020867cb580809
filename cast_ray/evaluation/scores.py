"""Scores of evaluated models: Avg@k, pass@k, reasons of failure, and quality of play.

A model may have several runs (training seeds). Its scores are means over the runs, as in the paper;
the runs must hold the same attempts at the same puzzles, so that they have equal weight.

Letter: ``T`` turns of an attempt.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cast_ray.envs.text_env import DEADLOCK, LOST, TURN_BUDGET
from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.games.game import Effect
from cast_ray.games.turn_quality import first_fatal_turn, has_regret, optimal_turns, turn_regrets
from cast_ray.rollout.chat_episode import NO_ANSWER
from cast_ray.runs.report.wording import words_of
from cast_ray.statistics import Success, success_rate

_CUT_OFF = ("truncated", "token_budget")
FAILURES = (
    "deadlock", "mine", "wrong_purchase", "budget", "invalid", "truncated", NO_ANSWER, "other",
)  # fmt: skip
"""Why an attempt failed. ``budget``: it used all turns; ``invalid``: likewise, and more than half
of them had no legal action. ``truncated``: it used all tokens. ``no_answer``: its endpoint gave no
usable answer. That counts as not solved, as without such attempts a model would look better the
more often its endpoint fails; so with them its score is a lower bound."""

_NOT_LEGAL = (Effect.INVALID, Effect.ILLEGAL)


def success_of(attempts: Sequence[Attempt], *, seed: int) -> Success:
    """Return the share of solved attempts (Avg@k), the mean over runs, with its 95% interval.

    The bootstrap resamples puzzles, with all attempts and runs at each. The order of ``attempts``
    does not matter.

    Args:
        attempts: of one model.
        seed: of the bootstrap.

    Raises:
        ConfigError: there are none, they are of several models, or the runs differ in puzzles.
    """
    check_runs(attempts)
    ordered = sorted(attempts, key=puzzle_key)
    return success_rate(
        ["\n".join(puzzle_key(attempt)) for attempt in ordered],
        [float(attempt.is_success) for attempt in ordered],
        seed=seed,
    )


def pass_at_k(attempts: Sequence[Attempt]) -> tuple[float, ...]:
    """Return ``[K]`` the probability that one of k attempts at a puzzle solves it, k = 1 .. K.

    The unbiased estimate: ``1 - C(n - c, k) / C(n, k)`` if c of n attempts solved it; the mean over
    puzzles and runs. K is the smallest number of attempts at a puzzle.

    Args:
        attempts: of one model.

    Raises:
        ConfigError: as ``success_of``.
    """
    check_runs(attempts)
    played = Counter((attempt.run, puzzle_key(attempt)) for attempt in attempts)
    solved = Counter((one.run, puzzle_key(one)) for one in attempts if one.is_success)
    # All runs have the same puzzles, so this is also the mean over runs.
    return tuple(
        math.fsum(
            1 - math.comb(total - solved[which], k) / math.comb(total, k)
            for which, total in played.items()
        )
        / len(played)
        for k in range(1, min(played.values()) + 1)
    )


def failure_reasons(attempts: Sequence[Attempt]) -> dict[str, int]:
    """Count the failed attempts by reason, one of ``FAILURES`` each."""
    counts = Counter(_failure(attempt) for attempt in attempts if not attempt.is_success)
    return {reason: counts[reason] for reason in FAILURES}


def attempts_per_puzzle(attempts: Sequence[Attempt]) -> int:
    """Return k of Avg@k: the number of attempts at each puzzle in each run.

    Raises:
        ConfigError: the number differs between puzzles, or there are no attempts.
    """
    _require_some(attempts)
    # A set that is played as given may hold a puzzle more than once, in groups of its own.
    keys = ((one.model, one.run, (*puzzle_key(one), one.group)) for one in attempts)
    played = Counter(keys).most_common()
    (_, most), ((model, _, puzzle), fewest) = played[0], played[-1]
    if fewest < most:
        raise ConfigError(
            f"{model!r} played puzzle {puzzle[2]} of {puzzle[0]}:{puzzle[1]} {fewest} times and "
            f"others {most} times: evaluate into a new directory"
        )
    return most


def puzzle_key(attempt: Attempt) -> tuple[str, str, str]:
    """Return what identifies a puzzle across models and runs: game, tier and id."""
    return attempt.game, attempt.tier, attempt.puzzle_id


def check_runs(attempts: Sequence[Attempt]) -> None:
    """Raise ConfigError unless these are of one model whose runs played the same puzzles."""
    _require_some(attempts)
    models = sorted({attempt.model for attempt in attempts})
    if len(models) > 1:
        raise ConfigError(
            f"attempts of {' and '.join(map(repr, models))} are mixed: score one model at a time"
        )
    runs: dict[int, Counter[tuple[str, str, str]]] = {}
    for attempt in attempts:
        runs.setdefault(attempt.run, Counter())[puzzle_key(attempt)] += 1
    first, *others = runs.values()
    for other in others:
        if other != first:
            raise ConfigError(
                f"the runs of {models[0]!r} cannot be averaged: one holds {first.total()} attempts "
                f"at {len(first)} puzzles, another {other.total()} at {len(other)}, and not all "
                "are the same; evaluate all runs together"
            )


def _require_some(attempts: Sequence[Attempt]) -> None:
    if not attempts:
        raise ConfigError("there are no attempts to score: evaluate at least one puzzle")


def _failure(attempt: Attempt) -> str:
    reason = attempt.end_reason
    if reason == DEADLOCK:
        return "deadlock"
    if reason == LOST:
        return words_of(attempt.game).failure
    if reason in _CUT_OFF:
        return "truncated"
    if reason == NO_ANSWER:
        return NO_ANSWER
    if reason != TURN_BUDGET:
        return "other"
    num_not_legal = sum(effect in _NOT_LEGAL for effect in attempt.effects)
    return "invalid" if 2 * num_not_legal > len(attempt.effects) else "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayQuality:
    """Quality and effort of play; None = undefined (a benchmark's regret) or unknown (a price)."""

    mean_regret: float | None
    """Moves lost compared with the best action, over the turns that have a regret."""
    optimal_share: float | None
    """In [0, 1], of the turns at which the puzzle could still be solved."""
    fatal_share: float | None
    """In [0, 1], of attempts: those with a move that made the puzzle unsolvable."""
    median_fatal_turn: float | None
    """Number of the first such turn, from 1, over the attempts that have one."""
    excess_turns: float | None
    """Turns of solved attempts minus those that the solver needs; a mean."""
    excess_risk: float | None
    """Minesweeper: probability of a mine in the revealed cell minus that of the safest cell; mean
    over reveals."""
    safe_share: float | None
    """In [0, 1], of reveals: those of a provably safe cell."""
    turns: float | None
    """Per attempt, as are the next four; means."""
    answer_tokens: float | None
    """Per attempt."""
    answer_tokens_per_turn: float | None
    prompt_tokens: float | None
    """Per attempt, of all its requests."""
    seconds: float | None
    """Per attempt."""
    price_usd: float | None
    """Total of all attempts."""
    num_retries: int
    """Total of all attempts."""


def play_quality(attempts: Sequence[Attempt]) -> PlayQuality:
    """Return quality and effort of play; the order of ``attempts`` does not matter."""
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
        answer_tokens_per_turn=_ratio(tokens, num_turns),
        prompt_tokens=_ratio(_total(one.prompt_tokens for one in attempts), len(attempts)),
        seconds=_mean(one.seconds for one in attempts),
        price_usd=_total(one.price_usd for one in attempts),
        num_retries=sum(one.num_retries for one in attempts),
    )


def _regrets(attempt: Attempt) -> list[int | None]:
    return turn_regrets(attempt.costs, attempt.effects, game=attempt.game)


def _fatal_turn(attempt: Attempt) -> list[int | None]:
    """Return [number of the first fatal turn, from 1], [None] if there is none, [] if unknown.

    In Minesweeper K is that of the true board, so an infinite K says nothing about the player.
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
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if a value is unknown, or there are none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return math.fsum(known) if known and len(known) == len(found) else None


def _ratio(value: float | None, count: int) -> float | None:
    return value / count if value is not None and count else None
