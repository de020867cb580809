"""Sokoban boards as pictures."""

from __future__ import annotations

from markupsafe import Markup

from cast_ray.games.sokoban import SYMBOLS
from cast_ray.runs.report.boards.drawing import CELL, ground, is_rectangle, picture, piece

_PIECES = {
    "O": ("target",),
    "X": ("box",),
    "*": ("target", "stored"),
    "P": ("player",),
    "S": ("target", "player"),
}
_LEGEND = (
    ("#", "wall"),
    ("O", "target"),
    ("X", "box"),
    ("*", "box on its target"),
    ("P", "player"),
    ("S", "player on a target"),
)


def draw_sokoban(text: str) -> Markup | None:
    """Return a state as a picture; None for a text that is no board of Sokoban."""
    rows = text.removesuffix("\n").split("\n")
    return _drawn(rows) if is_rectangle(rows, SYMBOLS) else None


def sokoban_legend() -> list[tuple[Markup, str]]:
    """Return ``[(picture, meaning), …]`` of the pieces."""
    return [(_drawn([symbol]), meaning) for symbol, meaning in _LEGEND]


def _drawn(rows: list[str]) -> Markup:
    pieces = [
        piece(name, row=row, col=col)
        for row, line in enumerate(rows)
        for col, symbol in enumerate(line)
        for name in _PIECES.get(symbol, ())
    ]
    box = (0, 0, CELL * len(rows[0]), CELL * len(rows))
    return picture([*ground(rows, wall="#"), *pieces], game="sokoban", rows=rows, box=box)
