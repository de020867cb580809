"""Boards as pictures: a drawing for the games that have one, text for any other."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game
from cast_ray.runs.report.board_minesweeper import draw_minesweeper, minesweeper_legend
from cast_ray.runs.report.board_rush_hour import draw_rush_hour, rush_hour_legend
from cast_ray.runs.report.board_sokoban import draw_sokoban, sokoban_legend
from cast_ray.runs.report.svg import tag

_DRAWERS: dict[str, Callable[[str], Markup | None]] = {
    "sokoban": draw_sokoban,
    "minesweeper": draw_minesweeper,
    "rush_hour": draw_rush_hour,
}
"""None for a text that the drawing does not know."""
_LEGENDS = {
    "sokoban": sokoban_legend,
    "minesweeper": minesweeper_legend,
    "rush_hour": rush_hour_legend,
}


def draw_board(game: str, text: str) -> Markup:
    """Return a state as a picture if the game has one for it, else as text of several lines."""
    drawing = _DRAWERS[game](text) if game in _DRAWERS else None
    return tag("pre", _in_lines(game, text), class_="board text") if drawing is None else drawing


def board_legend(game: str) -> list[tuple[Markup, str]]:
    """Return ``[(picture, meaning), …]`` of a game's pieces; empty for a game without drawing."""
    return _LEGENDS[game]() if game in _LEGENDS else []


def _in_lines(game: str, text: str) -> str:
    """Return a state's text; for one in a single line what the policy saw of it, if that is known.

    A stored text may be of a game that is not installed here, or broken: it is shown as it is.
    """
    if "\n" in text:
        return text
    try:
        rules = get_game(game)
        return rules.observe(rules.decode(text))
    except (ConfigError, PuzzleError):
        return text
