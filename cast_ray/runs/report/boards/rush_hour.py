"""Rush Hour boards as pictures."""

from __future__ import annotations

from markupsafe import Markup

from cast_ray.errors import PuzzleError
from cast_ray.games.rush_hour_board import RED_CAR, WALL, Board, Place, read_board
from cast_ray.games.text import grid_rows
from cast_ray.runs.report.boards.drawing import CELL, ground, letter, picture
from cast_ray.runs.report.svg import tag

_EDGE = 3
"""Free room around the cells, for the frame."""
_EXIT = 12
"""Right of the cells, for the arrow out."""
_GAP = 2.5
"""Between a vehicle and the edge of its cells."""


def draw_rush_hour(text: str) -> Markup | None:
    """Return a state as a picture; None for a text that is no board of Rush Hour."""
    try:
        board = read_board(text)
    except PuzzleError:
        return None
    symbols = text.replace("\n", "").replace("o", ".")
    rows = grid_rows(symbols, board.cols)
    parts = [*ground(rows, wall=WALL), _frame(board)]
    parts += [_vehicle(name, place) for name, place in sorted(board.places.items())]
    width, height = board.cols * CELL, board.rows * CELL
    box = (-_EDGE, -_EDGE, width + _EDGE + _EXIT, height + 2 * _EDGE)
    return picture(parts, game="rush_hour", rows=rows, box=box)


def rush_hour_legend() -> list[tuple[Markup, str]]:
    """Return ``[(picture, meaning), …]`` of the pieces."""
    along = {
        name: _vehicle(name, Place(is_vertical=False, length=2, line=0, offset=0))
        for name in (RED_CAR, "B")
    }
    cell, bar = (0, 0, CELL, CELL), (0, 0, 2 * CELL, CELL)
    return [
        (picture(parts, game="rush_hour", rows=[row], box=box), meaning)
        for parts, row, box, meaning in (
            ([*ground(["AA"]), along[RED_CAR]], "AA", bar, "the red car"),
            ([*ground(["BB"]), along["B"]], "BB", bar, "another vehicle"),
            (ground([WALL], wall=WALL), WALL, cell, "wall"),
            ([_arrow(x=CELL / 2 - _EXIT / 2, y=CELL / 2)], ">", cell, "the exit"),
        )
    ]


def _vehicle(name: str, place: Place) -> Markup:
    """Return a bar with a letter over the cells of a place."""
    along, across = CELL * place.offset, CELL * place.line
    left, top = (across, along) if place.is_vertical else (along, across)
    long = CELL * place.length
    width, height = (CELL, long) if place.is_vertical else (long, CELL)
    bar = tag(
        "rect",
        class_="vehicle red" if name == RED_CAR else "vehicle",
        x=left + _GAP,
        y=top + _GAP,
        width=width - 2 * _GAP,
        height=height - 2 * _GAP,
        rx=5,
    )
    style = "plate red" if name == RED_CAR else "plate"
    return bar + letter(name, style=style, x=left + width / 2, y=top + height / 2)


def _frame(board: Board) -> Markup:
    """Return the edge of the board, open at the exit, and the arrow through it."""
    width, height, above = board.cols * CELL, board.rows * CELL, board.places[RED_CAR].line * CELL
    line = f"M{width} {above}V0H0V{height}H{width}V{above + CELL}"
    return tag("path", class_="frame-line", d=line) + _arrow(x=width, y=above + CELL / 2)


def _arrow(*, x: float, y: float) -> Markup:
    return tag("path", class_="exit", d=f"M{x + 3:g} {y - 5:g}l5 5l-5 5")
