"""What all drawn boards share: the size of a cell, floor, grid lines, walls, the picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from cast_ray.runs.report.svg import join, tag

CELL = 20
"""Side of a cell in the drawing's own units; the pieces in ``pieces.html`` fill one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardDrawing:
    """How one game's boards are drawn."""

    draw: Callable[[str], Markup | None]
    """Return a state, from its text, as a picture; None for a text that is no board."""
    legend: Callable[[], list[tuple[Markup, str]]] = list
    """Return ``[(picture, meaning), …]`` of the pieces."""


def ground(rows: list[str], *, wall: str = "") -> list[Markup]:
    """Return the floor of a board and its grid lines, and its walls where a symbol stands for them.

    Args:
        rows: the board, one symbol per cell, all of one length.
        wall: the symbol of a wall.
    """
    width, height = CELL * len(rows[0]), CELL * len(rows)
    lines = [f"M0 {y}h{width}" for y in range(CELL, height, CELL)]
    lines += [f"M{x} 0v{height}" for x in range(CELL, width, CELL)]
    walls = [
        f"M{CELL * col} {CELL * row}h{CELL * length}v{CELL}h-{CELL * length}z"
        for row, line in enumerate(rows)
        for col, length in _runs(line, wall)
    ]
    parts = [tag("rect", class_="floor", width=width, height=height)]
    if lines:
        parts.append(tag("path", class_="grid", d="".join(lines)))
    if walls:
        parts.append(tag("path", class_="wall", d="".join(walls)))
    return parts


def piece(name: str, *, row: int, col: int) -> Markup:
    """Return a piece of ``pieces.html`` in its cell."""
    return tag("use", href=f"#{name}", x=CELL * col, y=CELL * row)


def letter(text: str, *, style: str, x: float, y: float) -> Markup:
    """Return a text whose middle is at a point."""
    # A font's middle is a third of its size above its line; the classes are 8 to 13 units high.
    return tag("text", text, class_=f"on-board {style}", x=x, y=y, dy="0.35em")


def picture(
    parts: list[Markup], *, game: str, rows: list[str], box: tuple[int, int, int, int]
) -> Markup:
    """Return a drawing of a board, with its rows as text for screen readers.

    Args:
        parts: in the order in which they are painted.
        game: a class of the picture.
        rows: the board.
        box: left, top, width and height of the part that is seen.
    """
    return tag(
        "svg",
        join(parts),
        class_=f"board {game}",
        viewBox=" ".join(map(str, box)),
        role="img",
        aria_label="Board " + " / ".join(rows),
        style=f"--cols:{box[2] / CELL:g}",
    )


def is_rectangle(rows: list[str], symbols: str) -> bool:
    """Return whether rows are of one length, not empty, and of known symbols alone."""
    return (
        bool(rows[0])
        and len({len(row) for row in rows}) == 1
        and set(symbols).issuperset("".join(rows))
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
