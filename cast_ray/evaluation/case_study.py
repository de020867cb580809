"""The case study, an HTML page with two models side by side on the same puzzles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.case_study_view import ShownAttempt, show_attempt
from cast_ray.evaluation.table_sections import title_of
from cast_ray.files import write_text
from cast_ray.games import get_game
from cast_ray.runs.report.held_out import cost_chart
from cast_ray.runs.report.page import page_templates
from cast_ray.runs.report.wording import words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The results of all attempts of one model at one puzzle."""

    num_solved: int
    num_attempts: int
    mean_reward: float
    """In [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One puzzle, with one attempt of each model."""

    first: Attempt
    second: Attempt
    first_tally: Tally
    second_tally: Tally

    @property
    def difference(self) -> tuple[float, float]:
        """Share solved and mean reward of the first model minus the second's."""
        ours, theirs = self.first_tally, self.second_tally
        share = ours.num_solved / ours.num_attempts - theirs.num_solved / theirs.num_attempts
        return share, ours.mean_reward - theirs.mean_reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """The cases that the page shows, and counts over all puzzles."""

    shown: tuple[Case, ...]
    num_first_better: int
    """Puzzles on which the first model is better by ``Case.difference``."""
    num_equal: int
    num_second_better: int

    @property
    def num_puzzles(self) -> int:
        """Puzzles that both models attempted."""
        return self.num_first_better + self.num_equal + self.num_second_better


_Puzzle = tuple[str, str, str, str]
"""Game, tier, id and board."""


def choose_cases(first: Sequence[Attempt], second: Sequence[Attempt], *, limit: int) -> Cases:
    """Return the puzzles whose outcomes differ most.

    The games and tiers take turns, each with its puzzle whose share of solved attempts differs most
    (ties: whose mean reward differs most; then the earlier one). Puzzles without a difference come
    last. The model that is better on a puzzle is shown with its best attempt, the other one with
    its worst; if they are equal, with their first attempts.

    Args:
        first: all attempts of one model; their order breaks ties.
        second: all attempts of another.
        limit: most puzzles to show, >= 1.

    Raises:
        ConfigError: no puzzle was attempted by both.
    """
    ours, theirs = _by_puzzle(first), _by_puzzle(second)
    cases = [_case(ours[puzzle], theirs[puzzle]) for puzzle in ours if puzzle in theirs]
    if not cases:
        raise ConfigError(
            "a case study needs a puzzle that both models attempted, and there is none: evaluate "
            "them together"
        )
    return Cases(
        shown=tuple(_in_turn(cases)[:limit]),
        num_first_better=sum(case.difference > (0, 0) for case in cases),
        num_equal=sum(case.difference == (0, 0) for case in cases),
        num_second_better=sum(case.difference < (0, 0) for case in cases),
    )


def _by_puzzle(attempts: Sequence[Attempt]) -> dict[_Puzzle, list[Attempt]]:
    """Return the attempts at each puzzle by run and number; puzzles in their order."""
    found: dict[_Puzzle, list[Attempt]] = {}
    for attempt in attempts:
        puzzle = (attempt.game, attempt.tier, attempt.puzzle_id, attempt.puzzle)
        found.setdefault(puzzle, []).append(attempt)
    for tries in found.values():
        tries.sort(key=lambda attempt: (attempt.run, attempt.attempt))
    return found


def _case(ours: list[Attempt], theirs: list[Attempt]) -> Case:
    case = Case(
        first=ours[0], second=theirs[0], first_tally=_tally(ours), second_tally=_tally(theirs)
    )
    # max and min return the first of equals.
    if case.difference > (0, 0):
        return replace(case, first=max(ours, key=_outcome), second=min(theirs, key=_outcome))
    if case.difference < (0, 0):
        return replace(case, first=min(ours, key=_outcome), second=max(theirs, key=_outcome))
    return case


def _tally(attempts: list[Attempt]) -> Tally:
    return Tally(
        num_solved=sum(attempt.is_success for attempt in attempts),
        num_attempts=len(attempts),
        mean_reward=fmean(attempt.reward for attempt in attempts),
    )


def _outcome(attempt: Attempt) -> tuple[bool, float]:
    return attempt.is_success, attempt.reward


def _in_turn(cases: list[Case]) -> list[Case]:
    """Return cases by their difference, one of each game and tier after the other."""
    by_tier: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        by_tier.setdefault((case.first.game, case.first.tier), []).append(case)
    placed: list[tuple[bool, int, Case]] = []
    for members in by_tier.values():
        members.sort(key=_by_difference)
        placed += [(case.difference == (0, 0), place, case) for place, case in enumerate(members)]
    placed.sort(key=lambda entry: entry[:2])
    return [case for _, _, case in placed]


def _by_difference(case: Case) -> tuple[float, float]:
    share, reward = case.difference
    return -abs(share), -abs(reward)


_LONGEST_NAME = 20
"""Letters of a model's name beside its line in a chart."""


def write_case_study(
    path: Path, first: Sequence[Attempt], second: Sequence[Attempt], *, limit: int = 20
) -> None:
    """Write a page of the puzzles that ``choose_cases`` returns.

    The page is one file that loads nothing from other hosts and runs only its own script: whatever
    a model wrote stays text.

    Args:
        path: of the page.
        first: all attempts of one model.
        second: all attempts of another at the same puzzles.
        limit: most puzzles to show, >= 1.

    Raises:
        ConfigError: no puzzle was attempted by both.
        EnvironmentSetupError: the file system refused something.
    """
    write_text(path, _render(choose_cases(first, second, limit=limit)))


def _render(cases: Cases) -> str:
    environment = page_templates()
    environment.filters["title"] = title_of
    return environment.get_template("case_study.html").render(
        names=(cases.shown[0].first.model, cases.shown[0].second.model),
        cases=cases,
        views=[_view(case) for case in cases.shown],
    )


def _view(case: Case) -> dict[str, Any]:  # Any: what the template reads by name
    shown = [show_attempt(attempt) for attempt in (case.first, case.second)]
    game = case.first.game
    return {
        "case": case,
        "game": game,
        "sides": list(zip(shown, ("a", "b"), (case.first_tally, case.second_tally), strict=True)),
        "words": words_of(game),
        "chart": _cost_chart(shown) if any(one.has_costs for one in shown) else None,
        "rules": _rules(game),
    }


def _cost_chart(shown: Sequence[ShownAttempt]) -> Markup:
    """Return a chart of the cost-to-go of both attempts."""
    played = [
        (name, style, one.attempt.costs)
        for one, name, style in zip(shown, _short_names(shown), ("a", "b"), strict=True)
    ]
    return cost_chart(shown[0].attempt.game, played, of="the two attempts")


def _short_names(shown: Sequence[ShownAttempt]) -> list[str]:
    """Return names short enough for the chart; equal beginnings are cut, else the ends."""
    names = [one.attempt.model for one in shown]
    cut = [
        name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in names
    ]
    if len(set(cut)) == len(names):
        return cut
    return [
        name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :] for name in names
    ]


def _rules(game: str) -> str:
    """Return the system prompt of a game; empty for a benchmark or a game that is not installed."""
    try:
        return get_game(game).rules
    except ConfigError:
        return ""
