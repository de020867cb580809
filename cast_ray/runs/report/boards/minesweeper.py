"""Minesweeper boards as pictures, for people after the game: hidden mines show through."""

from __future__ import annotations

from markupsafe import Markup

from cast_ray.games.minesweeper import SYMBOLS
from cast_ray.runs.report.boards.drawing import CELL, ground, is_rectangle, letter, picture, piece

_PIECES = {
    ".": ("closed",),
    "+": ("closed", "mine"),
    "f": ("closed", "flag", "wrong"),
    "F": ("closed", "flag"),
    "*": ("hit",),
}
_LEGEND = (
    (".", "hidden"),
    ("+", "hidden mine, which the player does not see"),
    ("F", "flag, on a mine"),
    ("f", "flag on a safe cell"),
    ("2", "open, mines around it"),
    ("*", "mine that was hit"),
)
_MARGIN = 12
"""Above and left of the cells, for the numbers of columns and rows that the actions name."""


def draw_minesweeper(text: str) -> Markup | None:
    """Return a state as a picture; None for a text that is no board of Minesweeper."""
    rows = text.removesuffix("\n").split("\n")
    if not is_rectangle(rows, SYMBOLS):
        return None
    height, width = len(rows), len(rows[0])
    numbers = [
        letter(str(row), style="index", x=-_MARGIN / 2, y=CELL * (row + 0.5))
        for row in range(height)
    ]
    numbers += [
        letter(str(col), style="index", x=CELL * (col + 0.5), y=-_MARGIN / 2)
        for col in range(width)
    ]
    box = (-_MARGIN, -_MARGIN, CELL * width + _MARGIN, CELL * height + _MARGIN)
    return picture([*_cells(rows), *numbers], game="minesweeper", rows=rows, box=box)


def minesweeper_legend() -> list[tuple[Markup, str]]:
    """Return ``[(picture, meaning), …]`` of the cells."""
    box = (0, 0, CELL, CELL)
    return [
        (picture(_cells([symbol]), game="minesweeper", rows=[symbol], box=box), meaning)
        for symbol, meaning in _LEGEND
    ]


def _cells(rows: list[str]) -> list[Markup]:
    """Return the floor and everything on it; an open cell without mines around stays empty."""
    parts = ground(rows)
    for row, line in enumerate(rows):
        for col, symbol in enumerate(line):
            parts += [piece(name, row=row, col=col) for name in _PIECES.get(symbol, ())]
            if symbol in "12345678":
                x, y = CELL * (col + 0.5), CELL * (row + 0.5)
                parts.append(letter(symbol, style=f"count count-{symbol}", x=x, y=y))
    return parts
