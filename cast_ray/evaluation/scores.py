"""How often evaluated models solve: Avg@k, pass@k, and why the other attempts failed.

A model may have several runs (training seeds). Its figures are means over the runs, as in the
paper; runs must hold the same attempts at the same puzzles, so that every run weighs the same.

How evaluated models play, by the solver, and what it takes: means over attempts and turns.

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
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.turn_quality import first_fatal_turn, has_regret, optimal_turns, turn_regrets
from cast_ray.statistics import Success, success_rate

FAILURES = ("deadlock", "mine", "wrong_purchase", "budget", "invalid", "truncated", "other")
"""Why an attempt failed. ``budget``: no turn was left; ``invalid``: likewise, and more than half
of the turns held no legal action. ``truncated``: no token was left."""

_LOSSES = {Minesweeper.name: "mine", "webshop": "wrong_purchase"}
_CUT_OFF = ("truncated", "token_budget")
_NOT_LEGAL = (Effect.INVALID, Effect.ILLEGAL)


def success_of(attempts: Sequence[Attempt], *, seed: int) -> Success:
    """Return the share of solved attempts (Avg@k), the mean over runs, with its 95% interval.

    The bootstrap draws puzzles; all attempts and runs at one puzzle are drawn together. The order
    of ``attempts`` does not matter.

    Args:
        attempts: of one model.
        seed: of the bootstrap.

    Raises:
        ConfigError: there are none, they are of several models, or runs differ in what was played.
    """
    check_runs(attempts)
    ordered = sorted(attempts, key=puzzle_key)
    return success_rate(
        ["\n".join(puzzle_key(attempt)) for attempt in ordered],
        [float(attempt.is_success) for attempt in ordered],
        seed=seed,
    )


def pass_at_k(attempts: Sequence[Attempt]) -> tuple[float, ...]:
    """Return ``[K]`` the chance that one of k attempts at a puzzle solves it, k = 1 .. K.

    Unbiased, without drawing: with c of n attempts solved it is ``1 - C(n - c, k) / C(n, k)``. The
    mean over puzzles in each run, then over runs. K is the least number of attempts at a puzzle.

    Args:
        attempts: of one model.

    Raises:
        ConfigError: as ``success_of``.
    """
    check_runs(attempts)
    played = Counter((attempt.run, puzzle_key(attempt)) for attempt in attempts)
    solved = Counter((one.run, puzzle_key(one)) for one in attempts if one.is_success)
    # Runs hold the same puzzles, so the mean over all is the mean over runs.
    return tuple(
        math.fsum(
            1 - math.comb(total - solved[which], k) / math.comb(total, k)
            for which, total in played.items()
        )
        / len(played)
        for k in range(1, min(played.values()) + 1)
    )


def failure_reasons(attempts: Sequence[Attempt]) -> dict[str, int]:
    """Return how many attempts failed for which of ``FAILURES``; each failed one counts once."""
    counts = Counter(_failure(attempt) for attempt in attempts if not attempt.is_success)
    return {reason: counts[reason] for reason in FAILURES}


def attempts_a_puzzle(attempts: Sequence[Attempt]) -> int:
    """Return k of Avg@k: attempts at each puzzle in each run.

    Raises:
        ConfigError: puzzles have different numbers of them, or there are none.
    """
    played = Counter((one.model, one.run, puzzle_key(one)) for one in attempts)
    if len(set(played.values())) != 1:
        (which, fewest), (_, most) = _extremes(played)
        raise ConfigError(
            f"{which[0]!r} played puzzle {which[2][2]} of {which[2][0]}:{which[2][1]} {fewest} "
            f"times and others {most} times: evaluate into a new directory"
        )
    return next(iter(played.values()))


def puzzle_key(attempt: Attempt) -> tuple[str, str, str]:
    """Return what names a puzzle across models and runs: game, tier and id."""
    return attempt.game, attempt.tier, attempt.puzzle_id


def check_runs(attempts: Sequence[Attempt]) -> None:
    """Raise ConfigError unless these are one model's, and its runs played the same."""
    models = sorted({attempt.model for attempt in attempts})
    if not models:
        raise ConfigError("there are no attempts to take figures of: evaluate at least one puzzle")
    if len(models) > 1:
        raise ConfigError(
            f"attempts of {' and '.join(map(repr, models))} are mixed: take figures of one model"
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


def _extremes(
    played: Counter[tuple[str, int, tuple[str, str, str]]],
) -> list[tuple[tuple[str, int, tuple[str, str, str]], int]]:
    if not played:
        raise ConfigError("there are no attempts to take figures of: evaluate at least one puzzle")
    ordered = played.most_common()
    return [ordered[-1], ordered[0]]


def _failure(attempt: Attempt) -> str:
    reason = attempt.end_reason
    if reason == DEADLOCK:
        return "deadlock"
    if reason == LOST:
        return _LOSSES.get(attempt.game, "other")
    if reason in _CUT_OFF:
        return "truncated"
    if reason != TURN_BUDGET:
        return "other"
    num_not_legal = sum(effect in _NOT_LEGAL for effect in attempt.effects)
    return "invalid" if 2 * num_not_legal > len(attempt.effects) else "budget"


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
