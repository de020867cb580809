"""The page about the theorem: every claim with its label and its measured number."""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup, escape

from cast_ray.files import refusals_named, written_aside
from cast_ray.games import get_game
from cast_ray.report import phrasing
from cast_ray.report.board import draw_board
from cast_ray.report.templates import page_templates
from cast_ray.report.theory_charts import approximation_figures
from cast_ray.report.theory_claims import corrections, exact_claims
from cast_ray.theory.measurements import TheoryNumbers


def write_theory_page(numbers: TheoryNumbers, path: Path) -> None:
    """Write the page, one file that asks no other host for anything.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_text(_render(numbers), encoding="utf-8")


def _render(numbers: TheoryNumbers) -> str:
    environment = page_templates()
    environment.filters.update(raised=_raised, tiny=phrasing.tiny)
    room = numbers.room
    sokoban = get_game("sokoban")
    return environment.get_template("theory.html").render(
        numbers=numbers,
        board=draw_board("sokoban", sokoban.encode(room.states[0])),
        num_dead=int((room.cost_to_go == float("inf")).sum()),
        cost=f"{room.cost_to_go[0]:.0f}",
        claims=exact_claims(numbers),
        corrections=corrections(numbers),
        figures=approximation_figures(numbers),
    )


def _raised(text: str) -> Markup:
    """Return text with what stands after ``_`` or ``^`` lowered or raised."""
    lowered = re.sub(r"_(\w+)", r"<sub>\1</sub>", str(escape(text)))
    return Markup(re.sub(r"\^(\w+(?:\.\d+)?)", r"<sup>\1</sup>", lowered))
