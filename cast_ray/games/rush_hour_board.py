"""Read a Rush Hour board from text: where each vehicle stands, or what is wrong."""

from __future__ import annotations

from string import ascii_uppercase
from typing import NamedTuple

from cast_ray.errors import PuzzleError

SIDE = 6
NUM_CELLS = SIDE * SIDE
EXIT_ROW = 2
LENGTHS = (2, 3)
RED_CAR = "A"
EMPTY, WALL = ".", "x"

_NOT_VEHICLES = EMPTY + "o" + WALL
_SYMBOLS = frozenset(_NOT_VEHICLES + ascii_uppercase)
_IS_WALL = bytes(symbol == ord(WALL) for symbol in range(256))


class Place(NamedTuple):
    """Where a vehicle stands."""

    is_vertical: bool
    length: int
    line: int
    """Column of a vertical vehicle, row of a horizontal one."""
    offset: int
    """Row of the first cell of a vertical vehicle, column of that of a horizontal one."""


def _all_places() -> dict[tuple[int, ...], Place]:
    """Return the 108 places by their cells, ascending."""
    places: dict[tuple[int, ...], Place] = {}
    for line in range(SIDE):
        row = range(line * SIDE, (line + 1) * SIDE)
        column = range(line, NUM_CELLS, SIDE)
        for is_vertical, cells in ((False, row), (True, column)):
            for length in LENGTHS:
                for offset in range(SIDE - length + 1):
                    place = Place(is_vertical, length, line, offset)
                    places[tuple(cells[offset : offset + length])] = place
    return places


PLACES = _all_places()


def read_board(text: str) -> tuple[bytes, dict[str, Place]]:
    """Return the walls, ``[36]`` bytes of 0 and 1, and the place of each vehicle by its letter.

    Args:
        text: 36 symbols, in one line or in 6 lines of 6; one newline at the end is allowed.

    Raises:
        PuzzleError: the board has another size or an unknown symbol, a vehicle is split, bent, too
            short or too long, or the red car is missing or not on its row; row and column are
            named.
    """
    grid = _read_grid(text)
    cells_of: dict[str, list[int]] = {}
    for cell, symbol in enumerate(grid):
        if symbol not in _NOT_VEHICLES:
            cells_of.setdefault(symbol, []).append(cell)
    places: dict[str, Place] = {}
    for letter, cells in cells_of.items():
        place = PLACES.get(tuple(cells))
        if place is None:
            raise PuzzleError(_vehicle_fault(letter, cells))
        places[letter] = place
    _check_red_car(places.get(RED_CAR))
    return grid.encode().translate(_IS_WALL), places


def _read_grid(text: str) -> str:
    """Return the 36 known symbols of a board, or raise PuzzleError."""
    body = text.removesuffix("\n")
    if len(body) == NUM_CELLS and _SYMBOLS.issuperset(body):
        return body
    if "\n" in body:
        lines = body.split("\n")
    else:
        lines = [body[start : start + SIDE] for start in range(0, max(len(body), 1), SIDE)]
    for row, line in enumerate(lines):
        for column, symbol in enumerate(line):
            if symbol not in _SYMBOLS:
                raise PuzzleError(
                    f"unknown symbol {symbol!r} at row {row}, column {column}: use . or o for "
                    "empty, x for a wall, A for the red car, B to Z for the other vehicles"
                )
        if row == SIDE or len(line) != SIDE:
            column = 0 if row == SIDE else min(len(line), SIDE)
            raise PuzzleError(_size_fault(row, column))
    if len(lines) < SIDE:
        raise PuzzleError(_size_fault(len(lines), 0))
    return "".join(lines)


def _size_fault(row: int, column: int) -> str:
    return (
        f"the board is not 6 x 6, it is too short or too long at row {row}, column {column}: "
        "give 36 symbols, or 6 lines of 6"
    )


def _vehicle_fault(letter: str, cells: list[int]) -> str:
    """Return what is wrong with cells, ascending, that are no vehicle."""
    together = _connected(cells)
    if len(together) < len(cells):
        apart = next(cell for cell in cells if cell not in together)
        return (
            f"vehicle {letter} is split, a second part of it stands at {_place(apart)}: "
            "give each vehicle its own letter"
        )
    if len(cells) == 1:
        return f"vehicle {letter} has a single cell, at {_place(cells[0])}: give it 2 or 3"
    step = cells[1] - cells[0]
    for index, cell in enumerate(cells):
        if cell != cells[0] + index * step:
            return f"vehicle {letter} is bent at {_place(cell)}: keep it in one row or column"
    return (
        f"vehicle {letter} has {len(cells)} cells, the fourth at {_place(cells[3])}: give it 2 or 3"
    )


def _connected(cells: list[int]) -> set[int]:
    """Return those cells that are connected with the first one."""
    together = {cells[0]}
    reached = [cells[0]]
    for cell in reached:  # grows while it is walked
        for other in cells:
            distance = abs(cell // SIDE - other // SIDE) + abs(cell % SIDE - other % SIDE)
            if distance == 1 and other not in together:
                together.add(other)
                reached.append(other)
    return together


def _check_red_car(place: Place | None) -> None:
    """Raise PuzzleError unless there is a red car that lies on the exit's row."""
    remedy = f"lay it along row {EXIT_ROW}"
    if place is None:
        raise PuzzleError(f"the board has no red car A in rows 0 to 5, columns 0 to 5: {remedy}")
    if place.is_vertical:
        raise PuzzleError(
            f"the red car A stands upright at row {place.offset}, column {place.line}: {remedy}"
        )
    if place.line != EXIT_ROW:
        raise PuzzleError(
            f"the red car A is off the exit's row, at row {place.line}, column {place.offset}: "
            f"{remedy}"
        )


def _place(cell: int) -> str:
    return f"row {cell // SIDE}, column {cell % SIDE}"
