"""An attempt prepared for the case study: its turns with the solver's verdicts, and its facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.games import get_game
from cast_ray.games.game import Effect, ParseFailure
from cast_ray.games.text import split_at_last_block
from cast_ray.games.turn_quality import first_fatal_turn, has_regret, optimal_turns, turn_regrets
from cast_ray.runs.report.wording import count, duration, percent

_LINE = 32
"""Characters per line of an answer on a phone."""
_MANY_LINES = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The solver's verdict on a turn, in a few words."""

    text: str
    style: str
    """``better``, ``same`` or ``worse``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTurn:
    """What the page says of one turn besides what the attempt holds."""

    text_before: str
    """The answer up to the chosen action; all of it if there is none."""
    chosen: str
    """The fenced block with the action; empty if there is none."""
    text_after: str
    is_long: bool
    """Whether the answer needs a scroll bar."""
    feedback: str
    """The feedback for an action without effect; empty if unknown."""
    verdict: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAttempt:
    """One attempt, ready for the page."""

    attempt: Attempt
    turns: tuple[ShownTurn, ...]
    facts: tuple[str, ...]
    """Short texts on the quality of play and on effort."""

    @property
    def has_costs(self) -> bool:
        """Whether the cost of any state is known."""
        return any(not math.isnan(cost) for cost in self.attempt.costs)


def show_attempt(attempt: Attempt) -> ShownAttempt:
    """Return an attempt with verdicts, feedback and facts."""
    verdicts = _verdicts(attempt)
    turns = tuple(_turn(attempt, turn, verdict) for turn, verdict in enumerate(verdicts))
    return ShownAttempt(attempt=attempt, turns=turns, facts=(*_quality(attempt), *_price(attempt)))


def _turn(attempt: Attempt, turn: int, verdict: Verdict | None) -> ShownTurn:
    answer = attempt.answers[turn]
    # An answer that was cut off was not parsed.
    parts = None if attempt.effects[turn] == Effect.TRUNCATED else split_at_last_block(answer)
    before, chosen, after = parts or (answer, "", "")
    return ShownTurn(
        text_before=before,
        chosen=chosen,
        text_after=after,
        is_long=sum(1 + len(line) // _LINE for line in answer.split("\n")) > _MANY_LINES,
        feedback=_feedback(attempt, turn),
        verdict=verdict,
    )


def _feedback(attempt: Attempt, turn: int) -> str:
    """Return the feedback of the rules on an action without effect.

    Empty for a benchmark, and for a game that is not installed.
    """
    if attempt.effects[turn] not in (Effect.INEFFECTIVE, Effect.ILLEGAL, Effect.INVALID):
        return ""
    try:
        game = get_game(attempt.game)
        state = game.decode(attempt.states[turn])
    except (ConfigError, PuzzleError):
        return ""
    action = game.parse(attempt.answers[turn])
    return (
        action.feedback if isinstance(action, ParseFailure) else game.apply(state, action).feedback
    )


def _verdicts(attempt: Attempt) -> list[Verdict | None]:
    if has_regret(attempt.game):
        return _by_regret(attempt)
    return [
        _by_risk(risk, is_safe)
        for risk, is_safe in zip(attempt.excess_risks, attempt.safe_reveals, strict=True)
    ]


def _by_regret(attempt: Attempt) -> list[Verdict | None]:
    regrets = turn_regrets(attempt.costs, attempt.effects, game=attempt.game)
    fatal = first_fatal_turn(attempt.costs)
    found: list[Verdict | None] = []
    for turn, regret in enumerate(regrets):
        if turn == fatal:
            found.append(Verdict(text="fatal", style="worse"))
        elif regret is None:
            found.append(None)
        else:
            style = "worse" if regret else "better"
            found.append(Verdict(text=f"regret {regret}", style=style))
    return found


def _by_risk(excess: float | None, is_safe: bool | None) -> Verdict | None:
    if excess is None:
        return None
    if is_safe:
        return Verdict(text="provably safe", style="better")
    style = "worse" if excess > 0 else "same"
    return Verdict(text=f"excess risk {percent(excess, digits=1)}", style=style)


def _quality(attempt: Attempt) -> list[str]:
    """Return the known facts on the quality of play, and why it ended without an answer."""
    facts = [f"no answer ({attempt.no_answer_reason})"] if attempt.no_answer_reason else []
    optimal = _known(optimal_turns(attempt.costs, game=attempt.game))
    if optimal:
        facts.append(f"{sum(optimal)} of {len(optimal)} moves optimal")
    regrets = turn_regrets(attempt.costs, attempt.effects, game=attempt.game)
    wasted = [regret for regret in regrets if regret is not None]
    if wasted:
        facts.append(f"mean regret {fmean(wasted):.2f}")
    fatal = first_fatal_turn(attempt.costs) if has_regret(attempt.game) else None
    if fatal is not None:
        facts.append(f"fatal move in turn {fatal + 1}")
    safe = _known(attempt.safe_reveals)
    if safe:
        facts.append(f"{sum(safe)} of {len(safe)} reveals provably safe")
    return facts


def _price(attempt: Attempt) -> list[str]:
    """Return the known facts on effort."""
    facts: list[str] = []
    tokens = [number for number in attempt.answer_tokens if number is not None]
    if tokens and len(tokens) == len(attempt.answers):
        facts.append(count(sum(tokens), "token") + " written")
    if attempt.prompt_tokens:
        facts.append(count(attempt.prompt_tokens, "token") + " read")
    if attempt.price_usd is not None:
        facts.append(f"${attempt.price_usd:.4f}")
    if attempt.num_retries:
        facts.append(count(attempt.num_retries, "request") + " repeated")
    return [*facts, duration(attempt.seconds)]


def _known(values: Sequence[bool | None]) -> list[bool]:
    return [value for value in values if value is not None]
