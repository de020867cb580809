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
_FROM_SOK = str.maketrans("pPbB", "@+$*")
"""The letters of SOK files: ``P`` stands on a target there. In our symbols it does not."""
_CELLS = frozenset("#_OX*PS@+$.- ")
_MAY_BE_OUTSIDE = " -_"
_RUN = re.compile(r"(\d+)([^\d()|])")
_GROUP = re.compile(r"(\d+)\(([^()]*)\)")
_MAX_NESTED = 4
"""Runs within runs."""
_KEY = re.compile(r"\s*([A-Za-z][\w -]*)\s*[:=]\s*(.*)")
_SOK_LETTERS = "pbB"
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
    is_above = all(_keyed("title", lines) for lines in about[:-1])
    is_above = is_above and not _keyed("title", about[-1])
    own_lines = [_own_line(above, after=bool(i)) for i, above in enumerate(about[:-1])]
    if not all(own_lines[1:]):  # then what stands above the first level is about all of them
        own_lines[:1] = [_own_line(above, after=True) for above in about[:1]]
    levels = [
        (number, level, _title(above, below, own, is_above=is_above), _game(below))
        for (number, level), above, below, own in zip(
            rows, about, about[1:], own_lines, strict=False
        )
        if _is_level({*"".join(level)})
    ]
    for index, (number, level, title, game) in enumerate(levels, start=1):
        place = f"line {number}" if len(levels) == 1 else f"level {index}, line {number}"
        num_cells, fault = len(level) * max(map(len, level)), ""
        if num_cells > MAX_BOARD_CELLS:
            fault = f"the level has {num_cells} cells, more than {MAX_BOARD_CELLS}: use fewer"
        elif game:
            fault = f"the level is one of {game}: only Sokoban's can be read"
        board = "" if fault else "\n".join(_room(_without_sok_letters(level)))
        yield BoardText(place=place, text=board, fault=fault, title=title)


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
    if "#" in line and _CELLS.union(_SOK_LETTERS, "0123456789()|").issuperset(line):
        return _unrolled(line)
    if "|" in line and (rows := _unrolled(line)) and all(map(_is_slip, rows)):
        return rows
    return [line] if _is_slip(line.strip()) else None


def _is_slip(cells: str) -> bool:
    """Return whether a line is a row with a strange symbol and no text, so that it is named."""
    num_strange = sum(symbol not in _CELLS.union(_SOK_LETTERS) for symbol in cells)
    has_wall = len(cells) > 1 and "#" in (cells[0], cells[-1])
    return has_wall and num_strange * _MAX_STRANGE <= len(cells)


def _without_sok_letters(level: list[str]) -> list[str]:
    """Return a level in the usual symbols if it is written in SOK's letters, else as it is."""
    has_any = any(letter in row for row in level for letter in _SOK_LETTERS)
    return [row.translate(_FROM_SOK) for row in level] if has_any else level


def _unrolled(line: str) -> list[str] | None:
    """Return the rows of a line such as ``4#|#@$.#|4#``; None if its numbers count nothing."""

    def repeated(match: re.Match[str]) -> str:
        # A longer run is no room, and must not fill the memory.
        return match[2] * int(match[1]) if len(match[1]) <= 3 else ""

    for pattern in (*[_GROUP] * _MAX_NESTED, _RUN):
        if len(line) > MAX_BOARD_CELLS:
            return None
        line = pattern.sub(repeated, line)
    return line.rstrip("|").split("|")


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


def _keyed(key: str, lines: Sequence[str]) -> str:
    """Return what the first line ``key: value`` of some says; empty if there is none."""
    found = [match for line in lines if (match := _KEY.fullmatch(line))]
    return next((match[2].strip() for match in found if match[1].lower() == key), "")


def _game(below: Sequence[str]) -> str:
    """Return the game that a level is of; empty = Sokoban."""
    named = _keyed("game", below) or _keyed("variant", below)
    return "" if named.lower() == "sokoban" else named


def _own_line(above: Sequence[str], *, after: bool) -> str:
    """Return the last line before a level, unless it is about the level before; empty if none.

    ``after``: there is a level before, which the lines up to the first empty one are about.
    """
    last = max((i for i, line in enumerate(above) if line.strip()), default=-1)
    if last < 0:
        return ""
    is_adjacent = last == len(above) - 1
    is_apart = not after or any(not line.strip() for line in above[:last])
    is_comment = above[last].lstrip().startswith((";", "["))
    return above[last] if is_adjacent or is_apart or is_comment else ""


def _title(above: Sequence[str], below: Sequence[str], own_line: str, *, is_above: bool) -> str:
    """Return the title of a level from the lines between it and its neighbours."""
    if keyed := _keyed("title", above if is_above else below):
        return keyed
    candidates = [own_line] if own_line else []
    candidates += [line for line in below[:1] if line.strip()]
    plain = [line.strip(" ;'\"[]") for line in candidates if not _KEY.fullmatch(line)]
    return next((title for title in plain if title), "")
