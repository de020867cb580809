"""The case study: the same puzzles as two models played them, side by side, in one file."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from cast_ray.attempts import Attempt
from cast_ray.errors import ConfigError
from cast_ray.evaluation_sections import title_of
from cast_ray.files import refusals_named, written_aside
from cast_ray.games import get_game
from cast_ray.report import phrasing
from cast_ray.report.board import board_legend, draw_board
from cast_ray.report.cases import Case, Cases, choose_cases
from cast_ray.report.game_words import words_of
from cast_ray.report.line_chart import Line, line_chart
from cast_ray.report.shown_attempts import ShownAttempt, show_attempt
from cast_ray.report.templates import page_templates

_SCRIPTS = ("stepping.js", "case_study.js")
_LONGEST_NAME = 20
"""Letters of a model's name beside its line in a chart."""


def write_case_study(
    path: Path, first: Sequence[Attempt], second: Sequence[Attempt], *, limit: int = 20
) -> None:
    """Write a page of the puzzles whose outcomes differ most; ``choose_cases`` says which.

    The page is one file that asks no other host for anything, and runs no script but its own:
    whatever a model wrote stays text.

    Args:
        path: of the page.
        first: all attempts of one model.
        second: all attempts of another at the same puzzles.
        limit: most puzzles to show, >= 1.

    Raises:
        ConfigError: no puzzle was attempted by both.
        EnvironmentSetupError: the file system refused something.
    """
    text = _render(choose_cases(first, second, limit=limit))
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def _render(cases: Cases) -> str:
    environment = page_templates()
    environment.filters.update(cost=phrasing.cost, end_reason=phrasing.end_reason, title=title_of)
    environment.tests.update(infinite=math.isinf, unknown=math.isnan)
    environment.globals.update(count=phrasing.count, draw_board=draw_board)
    script = _script(environment)
    return environment.get_template("case_study.html").render(
        names=(cases.shown[0].first.model, cases.shown[0].second.model),
        cases=cases,
        views=[_view(case) for case in cases.shown],
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _script(environment: Environment) -> str:
    """Return the page's script, which its policy names by its hash."""
    assert environment.loader is not None
    sources = [environment.loader.get_source(environment, name)[0] for name in _SCRIPTS]
    return "\n" + "".join(sources)


def _view(case: Case) -> dict[str, Any]:  # Any: what the template reads by name
    shown = [show_attempt(attempt) for attempt in (case.first, case.second)]
    game = case.first.game
    return {
        "case": case,
        "game": game,
        "sides": list(zip(shown, ("a", "b"), (case.first_tally, case.second_tally), strict=True)),
        "words": words_of(game),
        "chart": _cost_chart(shown) if any(one.has_costs for one in shown) else None,
        "legend": board_legend(game),
        "rules": _rules(game),
    }


def _cost_chart(shown: Sequence[ShownAttempt]) -> Markup:
    """Return the cost-to-go of both attempts along their turns."""
    words = words_of(shown[0].attempt.game)
    lines = [
        Line(label=name, style=style, points=tuple(enumerate(one.attempt.costs)))
        for one, name, style in zip(shown, _short_names(shown), ("a", "b"), strict=True)
    ]
    return line_chart(
        lines,
        title=f"Cost-to-go {words.letter} after each turn of the two attempts",
        x_name="turn",
        write=lambda value: f"{value:.3g}",
        infinite=words.infinite,
        size=(1020, 200),
    )


def _short_names(shown: Sequence[ShownAttempt]) -> list[str]:
    """Return the models' names as they fit beside a line; those that begin alike lose the start."""
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
    """Return the system prompt of a game; empty for a benchmark, and for one not installed here."""
    try:
        return get_game(game).rules
    except ConfigError:
        return ""
