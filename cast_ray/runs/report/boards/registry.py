"""Which game is drawn how; boards without a drawing are shown as text."""

from __future__ import annotations

from markupsafe import Markup

from cast_ray.envs.registry import is_benchmark
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game, get_plugin
from cast_ray.runs.report.boards.drawing import BoardDrawing
from cast_ray.runs.report.boards.minesweeper import draw_minesweeper, minesweeper_legend
from cast_ray.runs.report.boards.rush_hour import draw_rush_hour, rush_hour_legend
from cast_ray.runs.report.boards.sokoban import draw_sokoban, sokoban_legend
from cast_ray.runs.report.svg import tag

_DRAWINGS = {
    "sokoban": BoardDrawing(draw=draw_sokoban, legend=sokoban_legend),
    "minesweeper": BoardDrawing(draw=draw_minesweeper, legend=minesweeper_legend),
    "rush_hour": BoardDrawing(draw=draw_rush_hour, legend=rush_hour_legend),
}
"""Of the built-in games."""


def draw_board(game: str, text: str) -> Markup:
    """Return a state as a picture if the game has one for it, else as text of several lines."""
    drawing = _drawing_of(game)
    picture = None if drawing is None else drawing.draw(text)
    style = "board text prose" if is_benchmark(game) else "board text"
    return tag("pre", _in_lines(game, text), class_=style) if picture is None else picture


def board_legend(game: str) -> list[tuple[Markup, str]]:
    """Return ``[(picture, meaning), …]`` of a game's pieces; empty for a game without drawing."""
    drawing = _drawing_of(game)
    return [] if drawing is None else drawing.legend()


def _drawing_of(game: str) -> BoardDrawing | None:
    """Return how a game's boards are drawn; None without a drawing, or if it is not installed."""
    if game in _DRAWINGS:
        return _DRAWINGS[game]
    try:
        return get_plugin(game).drawing
    except ConfigError:
        return None


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
