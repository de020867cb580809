"""The case study, an HTML page with two models side by side on the same puzzles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.scores import play_quality
from cast_ray.evaluation.table_sections import COSTS, MOVES, REVEALS, title_of
from cast_ray.files import write_text
from cast_ray.games import find_game
from cast_ray.runs.report.episode import player_data, shown_episode
from cast_ray.runs.report.page import page_templates


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One puzzle, with one attempt of each model."""

    first: Attempt
    second: Attempt
    solved: tuple[tuple[int, int], tuple[int, int]]
    """By model: how many of its attempts solved the puzzle, and how many there are."""
    difference: tuple[float, float]
    """Share solved and mean reward of the first model minus the second's."""


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
    solved = [sum(attempt.is_success for attempt in attempts) for attempts in (ours, theirs)]
    rewards = [fmean(attempt.reward for attempt in attempts) for attempts in (ours, theirs)]
    difference = (solved[0] / len(ours) - solved[1] / len(theirs), rewards[0] - rewards[1])
    first, second = ours[0], theirs[0]
    # max and min return the first of equals.
    if difference > (0, 0):
        first, second = max(ours, key=_outcome), min(theirs, key=_outcome)
    elif difference < (0, 0):
        first, second = min(ours, key=_outcome), max(theirs, key=_outcome)
    tallies = (solved[0], len(ours)), (solved[1], len(theirs))
    return Case(first=first, second=second, solved=tallies, difference=difference)


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
    write_text(path, case_study_page(choose_cases(first, second, limit=limit)))


def case_study_page(cases: Cases) -> str:
    """Return the HTML of the page."""
    environment = page_templates()
    environment.filters["title"] = title_of
    shown = [attempt for case in cases.shown for attempt in (case.first, case.second)]
    return environment.get_template("case_study.html").render(
        names=(shown[0].model, shown[1].model),
        cases=cases,
        facts=[_facts(case) for case in cases.shown],
        find_game=find_game,
        player_data=player_data([_episode(attempt) for attempt in shown]),
    )


def _episode(attempt: Attempt) -> dict[str, Any]:  # Any: JSON values
    return shown_episode(
        asdict(attempt),
        attempt.costs,
        excess_risk=attempt.excess_risks,
        is_safe=attempt.safe_reveals,
        num_tokens=attempt.answer_tokens,
    )


_OF_MANY = ("fatal_share", "turns")
"""Columns that mean nothing for a single attempt, or repeat its outcome."""


def _facts(case: Case) -> list[tuple[str, str, str]]:
    """Return what is known of each attempt's quality and effort: heading, figure, figure."""
    first, second = (asdict(play_quality([attempt])) for attempt in (case.first, case.second))
    return [
        (heading.partition(" (")[0], write(first[name]), write(second[name]))
        for heading, name, write in (*MOVES, *REVEALS, *COSTS)
        if name not in _OF_MANY and (first[name], second[name]) != (None, None)
    ]
