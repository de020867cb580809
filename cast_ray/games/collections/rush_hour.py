"""Rush Hour boards in the forms that public lists have: one line or several, other red cars."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase

from cast_ray.errors import PuzzleError
from cast_ray.games.rush_hour_board import (
    EMPTY,
    MAX_SIDE,
    MIN_SIDE,
    RED_CAR,
    WALL,
    board_text,
    read_board,
)
from cast_ray.games.text import BoardText

_EMPTY_SYMBOLS = ("._-0o", "._-0")
"""As some lists write an empty cell; in others a small o is a vehicle."""
_RED_CARS = "AXxRr"
"""As lists write it; those that have another one may have another vehicle A."""


def read_lists(text: str) -> Iterator[BoardText]:
    """Yield boards: lines ``[moves] board [states]``, or blocks of rows; and faulty lines.

    A line between blocks is the title of the board below it.
    """
    rows: list[str] = []
    title = ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        words = line.split()
        if len(words) == 1 and MIN_SIDE <= len(words[0]) <= MAX_SIDE:
            rows += words
            continue
        if len(rows) >= MIN_SIDE:
            place = f"line {number - len(rows)}"
            yield BoardText(place=place, text=_in_our_symbols(board_text(rows)), title=title)
            title = ""
        rows = []
        if line.startswith((";", "#")):
            title = line.strip("; #")
        elif words:
            yield _of_line(line, words, place=f"line {number}")


def _of_line(line: str, words: list[str], *, place: str) -> BoardText:
    """Return the board of a line ``[moves] board [states]``, or its fault."""
    cost = float(words.pop(0)) if len(words) > 1 and words[0].isdecimal() else None
    if len(words) == 2 and words[1].isdecimal():
        words.pop()  # the number of states in reach
    if len(words) == 1:
        return BoardText(place=place, text=_in_our_symbols(words[0]), cost=cost)
    start = len(line) - len(line.lstrip())
    fault = f"{len(words)} words at column {start}: give one board"
    return BoardText(place=place, fault=fault, cost=cost)


def _in_our_symbols(board: str) -> str:
    """Return a board with the red car as A; as it is if it can be read, or in no other form."""
    for red in ("", *_RED_CARS):
        for empty in _EMPTY_SYMBOLS:
            text = _renamed(board, red, empty) if red else board
            try:
                read_board(text)
            except PuzzleError:
                continue
            return text
    return board


def _renamed(board: str, red: str, empty: str) -> str:
    """Return a board with these symbols for the red car and empty cells, and its own others."""
    walls = "#" if red == WALL else f"#{WALL}"
    others = sorted({*board} - {*empty, *walls, red, "\n"}, key=board.index)
    names = dict(zip(others, ascii_uppercase[1:], strict=False))
    fixed = {**dict.fromkeys(empty, EMPTY), **dict.fromkeys(walls, WALL), red: RED_CAR, "\n": "\n"}
    return "".join((fixed | names).get(symbol, symbol) for symbol in board)
