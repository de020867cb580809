"""Read a Rush Hour board from text: where each vehicle stands, or what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from string import ascii_uppercase
from typing import NamedTuple

from cast_ray.errors import PuzzleError
from cast_ray.games.text import check_grid, grid_distance, grid_rows, place_of

SIDE = 6
"""Rows and columns of the usual board, whose text may be one line."""
EXIT_ROW = 2
"""Of the usual board; on others the exit is in whatever row the red car lies."""
MIN_SIDE, MAX_SIDE = 3, 8
"""64 cells: sets of them are numbers of 64 bits."""
MAX_VEHICLES = 21
"""A state is a number with 3 bits for each; more than 18 do not fit on the usual board."""
LENGTHS = (2, 3)
RED_CAR = "A"
EMPTY, WALL = ".", "x"

_NOT_VEHICLES = EMPTY + "o" + WALL
SYMBOLS = _NOT_VEHICLES + ascii_uppercase
_IS_WALL = bytes(symbol == ord(WALL) for symbol in range(256))


class Place(NamedTuple):
    """Where a vehicle stands."""

    is_vertical: bool
    length: int
    line: int
    """Column of a vertical vehicle, row of a horizontal one."""
    offset: int
    """Row of the first cell of a vertical vehicle, column of that of a horizontal one."""


class Board(NamedTuple):
    """What a text says."""

    rows: int
    cols: int
    walls: bytes
    """``[rows * cols]`` 1 where a wall is."""
    places: dict[str, Place]
    """Of each vehicle, by its letter."""


def line_cells(line: int, *, is_vertical: bool, rows: int, cols: int) -> range:
    """Return the cells of a column or a row, ascending."""
    return range(line, rows * cols, cols) if is_vertical else range(line * cols, (line + 1) * cols)


@lru_cache(maxsize=8)
def all_places(rows: int, cols: int) -> dict[tuple[int, ...], Place]:
    """Return the places of a board by their cells, ascending: 108 on the usual one."""
    places: dict[tuple[int, ...], Place] = {}
    for line in range(max(rows, cols)):
        for is_vertical, num_lines in ((False, rows), (True, cols)):
            cells = line_cells(line, is_vertical=is_vertical, rows=rows, cols=cols)
            for length in LENGTHS if line < num_lines else ():
                for offset in range(len(cells) - length + 1):
                    place = Place(is_vertical, length, line, offset)
                    places[tuple(cells[offset : offset + length])] = place
    return places


def read_board(text: str) -> Board:
    """Return size, walls and vehicles of a board.

    Args:
        text: lines of symbols, or the 36 of the usual board in one line; one newline at the end is
            allowed.

    Raises:
        PuzzleError: the board is ragged, too large or has an unknown symbol, a vehicle is split,
            bent, too short or too long, or the red car is missing or, on the usual board, not on
            its row; row and column are named.
    """
    lines = _read_lines(text)
    rows, cols, grid = len(lines), len(lines[0]), "".join(lines)
    cells_of: dict[str, list[int]] = {}
    for cell, symbol in enumerate(grid):
        if symbol not in _NOT_VEHICLES:
            cells_of.setdefault(symbol, []).append(cell)
    if len(cells_of) > MAX_VEHICLES:
        raise PuzzleError(f"the board has {len(cells_of)} vehicles: use at most {MAX_VEHICLES}")
    places: dict[str, Place] = {}
    for letter, cells in cells_of.items():
        place = all_places(rows, cols).get(tuple(cells))
        if place is None:
            raise PuzzleError(_vehicle_fault(letter, cells, cols))
        places[letter] = place
    _check_red_car(places.get(RED_CAR), rows, cols)
    return Board(rows, cols, grid.encode().translate(_IS_WALL), places)


def board_text(rows: Sequence[str]) -> str:
    """Return rows as one text: one line on the usual board, else a line each."""
    is_usual = len(rows) == len(rows[0]) == SIDE
    return ("" if is_usual else "\n").join(rows)


def _read_lines(text: str) -> list[str]:
    """Return the rows of a board, or raise PuzzleError."""
    body = text.removesuffix("\n")
    lines = body.split("\n") if "\n" in body else grid_rows(body, SIDE) or [""]
    remedy = "give 36 symbols in one line, or 3 to 8 lines of 3 to 8"
    if "\n" not in body and len(body) != SIDE * SIDE:
        row, col = divmod(min(len(body), SIDE * SIDE), SIDE)
        raise PuzzleError(
            f"the board is not 6 x 6, it is too short or too long at row {row}, column {col}: "
            f"{remedy}"
        )
    check_grid(lines, SYMBOLS)
    if not (MIN_SIDE <= len(lines) <= MAX_SIDE and MIN_SIDE <= len(lines[0]) <= MAX_SIDE):
        extent = f"rows 0 to {len(lines) - 1}, columns 0 to {len(lines[0]) - 1}"
        raise PuzzleError(f"the board has {extent}: {remedy}")
    return lines


def _vehicle_fault(letter: str, cells: list[int], cols: int) -> str:
    """Return what is wrong with cells, ascending, that are no vehicle."""
    together = _connected(cells, cols)
    if len(together) < len(cells):
        apart = next(cell for cell in cells if cell not in together)
        return (
            f"vehicle {letter} is split, a second part of it stands at {place_of(apart, cols)}: "
            "give each vehicle its own letter"
        )
    if len(cells) == 1:
        return f"vehicle {letter} has a single cell, at {place_of(cells[0], cols)}: give it 2 or 3"
    step = cells[1] - cells[0]
    for index, cell in enumerate(cells):
        if cell != cells[0] + index * step:
            where = place_of(cell, cols)
            return f"vehicle {letter} is bent at {where}: keep it in one row or column"
    fourth = place_of(cells[3], cols)
    return f"vehicle {letter} has {len(cells)} cells, the fourth at {fourth}: give it 2 or 3"


def _connected(cells: list[int], cols: int) -> set[int]:
    """Return those cells that are connected with the first one."""
    together = {cells[0]}
    reached = [cells[0]]
    for cell in reached:  # grows while it is walked
        for other in cells:
            if grid_distance(cell, other, cols) == 1 and other not in together:
                together.add(other)
                reached.append(other)
    return together


def _check_red_car(place: Place | None, rows: int, cols: int) -> None:
    """Raise PuzzleError unless there is a red car that lies on the exit's row."""
    is_usual = (rows, cols) == (SIDE, SIDE)
    remedy = f"lay it along row {EXIT_ROW}" if is_usual else "lay it along the exit's row"
    if place is None:
        extent = f"rows 0 to {rows - 1}, columns 0 to {cols - 1}"
        raise PuzzleError(f"the board has no red car A in {extent}: {remedy}")
    if place.is_vertical:
        raise PuzzleError(
            f"the red car A stands upright at row {place.offset}, column {place.line}: {remedy}"
        )
    if is_usual and place.line != EXIT_ROW:
        raise PuzzleError(
            f"the red car A is off the exit's row, at row {place.line}, column {place.offset}: "
            f"{remedy}"
        )
