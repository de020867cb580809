"""What games share when they read and write texts: grids, sets of cells, fences, board files.

A cell is ``row * cols + column``; a set of cells is the number with these bits set. An action
stands in the last pair of fences of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cast_ray.errors import PuzzleError

MAX_BOARD_CELLS = 10_000
"""A larger board is refused: up to this size a cost takes a second or two at worst."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardText:
    """One board of a file; a fault is a value, so that all faults of a file are shown together."""

    place: str
    """Where it stands: ``row 3`` of a table, from zero, or ``level 2, line 17`` of a text."""
    text: str = ""
    """For ``Game.decode``."""
    fault: str = ""
    """Why there is no text; empty if there is one."""
    title: str = ""
    """What the file calls it; may be empty."""
    num_hidden: int | None = None
    """Not None: the text is what a player sees of a board with so many ``Game.hidden_cells``."""
    cost: float | None = None
    """The cost that the file gives; ``inf`` = infinite, NaN = unknown, None = no cost given."""


def text_blocks(text: str) -> Iterator[BoardText]:
    """Yield the blocks of lines that empty lines, or lines that begin with ``;``, separate."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip() and not line.startswith(";"):
            block.append(line)
            continue
        if block:
            yield BoardText(place=f"line {number - len(block)}", text="\n".join(block))
        block = []


def shown(value: object) -> str:
    """Return a JSON value for a message, in a few characters."""
    if value is None:
        return "missing or null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def grid_rows(text: str, cols: int) -> list[str]:
    """Return the rows of a grid whose cells are written without line breaks."""
    return [text[start : start + cols] for start in range(0, len(text), cols)]


def grid_distance(cell: int, other: int, cols: int) -> int:
    """Return how many steps along rows and columns lie between two cells."""
    return abs(cell // cols - other // cols) + abs(cell % cols - other % cols)


def place_of(cell: int, cols: int) -> str:
    """Return row and column of a cell for a message."""
    return f"row {cell // cols}, column {cell % cols}"


def check_grid(
    lines: list[str], symbols: str, *, name: str = "the board", cols: int | None = None
) -> None:
    """Raise PuzzleError unless the lines are a filled rectangle of known symbols.

    Args:
        lines: the rows, at least one.
        symbols: what may be in them.
        name: for messages.
        cols: length of the rows; None = that of the first.
    """
    wanted = f"row 0 has {len(lines[0])}" if cols is None else f"must have {cols}"
    cols = len(lines[0]) if cols is None else cols
    if cols == 0:
        raise PuzzleError(f"{name} is empty at row 0, column 0: give one line of symbols per row")
    for row, line in enumerate(lines):
        if len(line) != cols:
            raise PuzzleError(
                f"{name} is ragged at row {row}, column {min(len(line), cols)}: the row has "
                f"{len(line)} cells and {wanted}; make all rows equally long"
            )
        unknown = line.strip(symbols)
        if unknown:
            raise PuzzleError(
                f"unknown symbol {unknown[0]!r} at row {row}, column {line.index(unknown[0])} of "
                f"{name}: use only {' '.join(symbols)}"
            )


def smallest_form(lines: list[str]) -> str:
    """Return the smallest text of a grid over the 8 symmetries of the square."""
    transposed = ["".join(column) for column in zip(*lines, strict=True)]
    texts: list[str] = []
    for grid in (lines, transposed):
        mirrored = [line[::-1] for line in grid]
        texts += ("\n".join(rows) for rows in (grid, grid[::-1], mirrored, mirrored[::-1]))
    return min(texts)


@lru_cache(maxsize=8)
def neighbors(rows: int, cols: int) -> tuple[int, ...]:
    """Return ``[rows * cols]`` the set of the up to 8 cells around each cell."""
    return tuple(
        sum(
            1 << r * cols + c
            for r in range(max(row - 1, 0), min(row + 2, rows))
            for c in range(max(col - 1, 0), min(col + 2, cols))
            if (r, c) != (row, col)
        )
        for row in range(rows)
        for col in range(cols)
    )


def cell_set(grid: str, symbols: str) -> int:
    """Return the set of cells that hold one of ``symbols``; ``grid`` has no line breaks."""
    return sum(1 << cell for cell, symbol in enumerate(grid) if symbol in symbols)


def members(cells: int) -> list[int]:
    """Return the cells of a set, ascending."""
    found: list[int] = []
    while cells:
        lowest = cells & -cells
        found.append(lowest.bit_length() - 1)
        cells ^= lowest
    return found


FENCE = "```"
LANGUAGE_TAGS = frozenset({"action", "text", "python", "bash"})


def last_fenced_block(answer: str) -> str | None:
    """Return the content of the last pair of fences, stripped, or None where there is none.

    Fences are paired from the left without overlap, so an odd fence at the end is ignored. A
    language tag in front (any case, followed by space) is dropped if something remains. Linear in
    the length of the answer, and never raises.

    Args:
        answer: whatever a policy wrote.

    Returns:
        The content, never empty; None without a pair of fences or with an empty last pair.
    """
    pieces = answer.split(FENCE)
    num_pairs = (len(pieces) - 1) // 2
    if num_pairs == 0:
        return None
    content = pieces[2 * num_pairs - 1].strip()
    tag, *rest = content.split(maxsplit=1) or [""]
    if rest and tag.lower() in LANGUAGE_TAGS:
        return rest[0]
    return content or None
