"""Sokoban levels in the forms that collections have: XSB and SOK files, Boxoban, one line of runs.

A level is a run of lines that look like rows of a room; every other line is text about levels. What
lies outside of the walls is no part of a level.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cast_ray.games.text import MAX_BOARD_CELLS, BoardText

_FROM_XSB = str.maketrans("@+$.- ", "PSXO__")
"""The usual symbols in ours; ``#`` and ``*`` mean the same in both."""
_CELLS = frozenset("#_OX*PS@+$.- ")
_MAY_BE_OUTSIDE = " -_"
_RUN = re.compile(r"(\d+)([^\d()|])")
_GROUP = re.compile(r"(\d+)\(([^()]*)\)")
_MAX_NESTED = 4
"""Runs within runs."""
_KEY = re.compile(r"\s*([A-Za-z][\w -]*)\s*[:=]\s*(.*)")
_MAX_STRANGE = 4
"""One strange symbol in so many cells is a slip in a row, which ``Sokoban.decode`` names."""


def read_levels(text: str) -> Iterator[BoardText]:
    """Yield the levels of a collection, each with its place and its title.

    A title is what ``Title:`` says below a level (above it, if the file ends with a level), else
    the line directly above or below, else a comment (``; 1``) before it.

    Args:
        text: of a file; any line breaks.
    """
    rows: list[tuple[int, list[str]]] = []
    about: list[list[str]] = [[]]
    is_row = False
    for number, line in enumerate(text.splitlines(), start=1):
        cells = _row(line)
        if cells is None:
            about[-1].append(line)
        elif is_row:
            rows[-1][1].extend(cells)
        else:
            rows.append((number, cells))
            about.append([])
        is_row = cells is not None
    is_above = all(map(_keyed_title, about[:-1])) and not _keyed_title(about[-1])
    levels = [
        (number, level, _title(above, below, is_above=is_above))
        for (number, level), above, below in zip(rows, about, about[1:], strict=False)
        if _is_level({*"".join(level)})
    ]
    for index, (number, level, title) in enumerate(levels, start=1):
        place = f"line {number}" if len(levels) == 1 else f"level {index}, line {number}"
        num_cells = len(level) * max(map(len, level))
        if num_cells > MAX_BOARD_CELLS:
            fault = f"the level has {num_cells} cells, more than {MAX_BOARD_CELLS}: use fewer"
            yield BoardText(place=place, fault=fault, title=title)
        else:
            yield BoardText(place=place, text="\n".join(_room(level)), title=title)


def _is_level(symbols: set[str]) -> bool:
    """Return whether rows are a level, with its faults, and no rule or title of such letters."""
    return "#" in symbols or bool(symbols & {*"PS@+"} and symbols & {*"X*$"})


def _row(line: str) -> list[str] | None:
    """Return the rows that a line holds, with its runs written out; None = text or nothing."""
    line = line.rstrip().expandtabs(4)
    if not line.strip():
        return None
    if _CELLS.issuperset(line):
        return [line]
    if "#" in line and _CELLS.union("0123456789()|").issuperset(line):
        return _unrolled(line)
    cells = line.strip()
    num_strange = sum(symbol not in _CELLS for symbol in cells)
    is_walled = len(cells) > 1 and cells[0] == cells[-1] == "#"
    return [line] if is_walled and num_strange * _MAX_STRANGE <= len(cells) else None


def _unrolled(line: str) -> list[str] | None:
    """Return the rows of a line such as ``4#|#@$.#|4#``; None if its numbers count nothing."""

    def repeated(match: re.Match[str]) -> str:
        # A longer run is no room, and must not fill the memory.
        return match[2] * int(match[1]) if len(match[1]) <= 3 else ""

    for pattern in (*[_GROUP] * _MAX_NESTED, _RUN):
        if len(line) > MAX_BOARD_CELLS:
            return None
        line = pattern.sub(repeated, line)
    rows = line.rstrip("|").split("|")
    return rows if all(map(_CELLS.issuperset, rows)) else None


def _room(rows: Sequence[str]) -> list[str]:
    """Return a level in our symbols, a rectangle; what is outside of its walls becomes wall.

    Outside is what the player could not walk to if there were no boxes and what is written like
    floor: all blanks and ``-``, and those ``_`` from which the edge is in reach. Rows and columns
    that lie outside as a whole are cut off.
    """
    width = max(map(len, rows))
    given = [row.ljust(width) for row in rows]
    board = [row.translate(_FROM_XSB) for row in given]
    cells = [(r, c) for r in range(len(board)) for c in range(width)]
    inside = _in_reach(board, [(r, c) for r, c in cells if board[r][c] in "PS"])
    if not inside:
        return board  # ``Sokoban.decode`` names the fault in these rows and columns
    border = [(r, c) for r, c in cells if r in (0, len(board) - 1) or c in (0, width - 1)]
    may_be = [(r, c) for r, c in border if given[r][c] in _MAY_BE_OUTSIDE and (r, c) not in inside]
    beyond = _in_reach(board, may_be)
    outside = {
        (r, c)
        for r, c in cells
        if (r, c) not in inside
        and (given[r][c] in " -" or ((r, c) in beyond and given[r][c] == "_"))
    }
    kept = [cell for cell in cells if cell not in outside]
    top, bottom = min(r for r, _ in kept), max(r for r, _ in kept)
    left, right = min(c for _, c in kept), max(c for _, c in kept)
    return [
        "".join("#" if (r, c) in outside else board[r][c] for c in range(left, right + 1))
        for r in range(top, bottom + 1)
    ]


def _in_reach(board: Sequence[str], starts: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the cells that can be walked to from some cells, through everything but walls."""
    found, unvisited = set(starts), list(starts)
    while unvisited:
        row, col = unvisited.pop()
        for r, c in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
            is_on_board = 0 <= r < len(board) and 0 <= c < len(board[0])
            if is_on_board and board[r][c] != "#" and (r, c) not in found:
                found.add((r, c))
                unvisited.append((r, c))
    return found


def _keyed_title(lines: Sequence[str]) -> str:
    found = [match for line in lines if (match := _KEY.fullmatch(line))]
    return next((match[2].strip() for match in found if match[1].lower() == "title"), "")


def _title(above: Sequence[str], below: Sequence[str], *, is_above: bool) -> str:
    """Return the title of a level from the lines between it and its neighbours."""
    if keyed := _keyed_title(above if is_above else below):
        return keyed
    last = next((line for line in reversed(above) if line.strip()), "")
    is_adjacent = bool(above) and above[-1] == last
    candidates = [last] if is_adjacent or last.lstrip().startswith((";", "[")) else []
    candidates += [line for line in below[:1] if line.strip()]
    plain = [line.strip(" ;'\"[]") for line in candidates if not _KEY.fullmatch(line)]
    return next((title for title in plain if title), "")
