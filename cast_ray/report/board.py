"""Boards as pictures: a drawing for the games that have one, the stored text for any other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from markupsafe import Markup

from cast_ray.games.sokoban import SYMBOLS
from cast_ray.report.svg import join, tag

_CELL = 20
_SOKOBAN_PIECES = {
    "O": ("target",),
    "X": ("box",),
    "*": ("target", "stored"),
    "P": ("player",),
    "S": ("target", "player"),
}
_SOKOBAN_LEGEND = (
    ("#", "wall"),
    ("O", "target"),
    ("X", "box"),
    ("*", "box on its target"),
    ("P", "player"),
    ("S", "player on a target"),
)


def draw_board(game: str, text: str) -> Markup:
    """Return a state as a picture if the game has one for it, else as its text."""
    drawing = _DRAWERS[game](text) if game in _DRAWERS else None
    return tag("pre", text, class_="board text") if drawing is None else drawing


def board_legend(game: str) -> list[tuple[Markup, str]]:
    """Return ``[(picture, meaning), …]`` of a game's pieces; empty for a game without drawing."""
    if game != "sokoban":
        return []
    return [(_sokoban_svg([symbol]), meaning) for symbol, meaning in _SOKOBAN_LEGEND]


def _draw_sokoban(text: str) -> Markup | None:
    rows = text.removesuffix("\n").split("\n")
    if not rows[0] or len({len(row) for row in rows}) > 1 or set("".join(rows)) - set(SYMBOLS):
        return None
    return _sokoban_svg(rows)


def _sokoban_svg(rows: list[str]) -> Markup:
    width, height = _CELL * len(rows[0]), _CELL * len(rows)
    walls = [
        f"M{_CELL * col} {_CELL * row}h{_CELL * length}v{_CELL}h-{_CELL * length}z"
        for row, line in enumerate(rows)
        for col, length in _runs(line, "#")
    ]
    grid = [f"M0 {y}h{width}" for y in range(_CELL, height, _CELL)]
    grid += [f"M{x} 0v{height}" for x in range(_CELL, width, _CELL)]
    pieces = [
        tag("use", href=f"#{piece}", x=_CELL * col, y=_CELL * row)
        for row, line in enumerate(rows)
        for col, symbol in enumerate(line)
        for piece in _SOKOBAN_PIECES.get(symbol, ())
    ]
    return tag(
        "svg",
        tag("rect", class_="floor", width=width, height=height),
        tag("path", class_="grid", d="".join(grid)) if grid else "",
        tag("path", class_="wall", d="".join(walls)) if walls else "",
        join(pieces),
        class_="board sokoban",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label="Board " + " / ".join(rows),
        style=f"--cols:{len(rows[0])}",
    )


def _runs(line: str, symbol: str) -> list[tuple[int, int]]:
    """Return ``[(start, length), …]`` of the runs of a symbol."""
    runs, start = [], 0
    for is_symbol, cells in groupby(line, key=lambda cell: cell == symbol):
        length = len(list(cells))
        if is_symbol:
            runs.append((start, length))
        start += length
    return runs


_DRAWERS: dict[str, Callable[[str], Markup | None]] = {"sokoban": _draw_sokoban}
"""None for a text that the drawing does not know."""
