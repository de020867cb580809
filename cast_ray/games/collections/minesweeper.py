"""Minesweeper boards in text files: layouts in our symbols, and views of players."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cast_ray.games.text import BoardText

_MINES = re.compile(r"\s*mines?\s*[:=]\s*(\d{1,6})\s*", re.IGNORECASE)
_HIDDEN = str.maketrans("#? f", "...F")


def read_fields(text: str) -> Iterator[BoardText]:
    """Yield blocks of lines that empty lines, or lines that begin with ``;``, separate.

    A line ``mines: N`` makes views of the blocks that follow: what a player sees of N mines, with
    ``.``, ``#``, ``?`` or a blank for a hidden cell.
    """
    rows: list[str] = []
    num_mines: int | None = None
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        match = _MINES.fullmatch(line)
        has_cells = bool(line) if num_mines is not None else bool(line.strip())
        if has_cells and not match and not line.startswith(";"):
            rows.append(line)
            continue
        if rows:
            place = f"line {number - len(rows)}"
            if num_mines is not None:
                width = max(map(len, rows))
                rows = [row.ljust(width).translate(_HIDDEN) for row in rows]
            yield BoardText(place=place, text="\n".join(rows), num_hidden=num_mines)
        rows = []
        num_mines = int(match[1]) if match else num_mines
