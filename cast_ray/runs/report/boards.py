"""Boards in reports: pictures by the page's modules for built-in games, else the game's own."""

from __future__ import annotations

import base64

from markupsafe import Markup

from cast_ray.envs.registry import is_benchmark
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game, get_plugin
from cast_ray.games.analysis import visible_board
from cast_ray.runs.report.figures import placeholder


def draw_board(game: str, text: str) -> Markup:
    """Return a state as a picture if the game has one, else as text of several lines.

    A stored text may be of a game that is not installed here, or broken: it is shown as it is.
    """
    if is_benchmark(game):
        return _text(text, "board text prose")
    try:
        rules = get_game(game)
        board = visible_board(rules, rules.decode(text), is_over=True)
    except (ConfigError, PuzzleError):
        return _text(text)
    try:
        drawing = get_plugin(game).drawing
    except ConfigError:
        shown = {"rows": board.rows, "text": board.text, "mines": board.mines}
        return placeholder("board", shown, "\n".join(board.rows), game=game)
    if drawing is None:
        return _text(text if "\n" in text else board.text)
    source = base64.b64encode(drawing(text).encode()).decode()
    picture = '<img class="board" alt="{}" src="data:image/svg+xml;base64,{}">'
    return Markup(picture).format(board.text, source)


def _text(text: str, style: str = "board text") -> Markup:
    return Markup('<pre class="{}">{}</pre>').format(style, text)
