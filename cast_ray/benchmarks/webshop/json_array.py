"""The elements of a JSON file that is one long array, without the array in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from cast_ray.errors import PuzzleError

_LEAST_READ = 1 << 20
_LONGEST_ELEMENT = 1 << 24
"""Characters. What is longer than this and still no JSON is taken for broken, instead of reading
the rest of a file of gigabytes into memory to make sure."""


def elements_of(path: Path) -> Iterator[object]:
    """Yield the elements of the array that a UTF-8 file holds, one after the other.

    Raises:
        PuzzleError: the file cannot be read, or is no JSON array; the element is counted from zero.
    """
    try:
        with open(path, encoding="utf-8") as file:
            yield from _elements(_Window(file), path)
    except (OSError, UnicodeDecodeError) as error:
        raise PuzzleError(f"{path} cannot be read ({error}): fetch it anew") from error


class _Window:
    """The part of a file that is in memory, and how far it has been understood."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.text = ""
        self.place = 0
        """Where in the text the next thing begins."""

    def skip_space(self) -> str:
        """Go to the next character that is no white space and return it; empty at the end."""
        while True:
            while self.place < len(self.text):
                if self.text[self.place] not in " \t\r\n":
                    return self.text[self.place]
                self.place += 1
            if not self.grow():
                return ""

    def grow(self) -> bool:
        """Drop what is understood, read on, return whether there was more.

        About as much again is read, so that a long element is looked at a few times and no more.
        """
        rest = self.text[self.place :]
        more = self._file.read(max(_LEAST_READ, len(rest)))
        self.text, self.place = rest + more, 0
        return bool(more)


def _elements(window: _Window, path: Path) -> Iterator[object]:
    if window.skip_space() != "[":
        raise PuzzleError(f"{path}: a JSON array is expected, which begins with [")
    window.place += 1
    separator = window.skip_space()
    decoder = json.JSONDecoder()
    number = 0
    while separator != "]":
        window.skip_space()
        yield _next_element(decoder, window, f"{path}, element {number}")
        separator = window.skip_space()
        if separator not in ("]", ","):
            raise PuzzleError(f"{path}, after element {number}: a comma or ] is expected")
        number += 1
        window.place += separator == ","
    window.place += 1
    if window.skip_space():
        raise PuzzleError(f"{path}: something stands behind the array's ]")


def _next_element(decoder: json.JSONDecoder, window: _Window, where: str) -> object:
    """Return the element that stands next, reading on as needed."""
    while True:
        try:
            element, end = decoder.raw_decode(window.text, window.place)
        except json.JSONDecodeError as error:
            if len(window.text) - window.place > _LONGEST_ELEMENT or not window.grow():
                raise PuzzleError(f"{where}: no JSON ({error.msg})") from error
        else:
            # A number that ends with the window may go on behind it.
            if end < len(window.text) or not window.grow():
                window.place = end
                return element
