"""Finds the error in what a process wrote before it died."""

from __future__ import annotations

import re

_MAX_CHARACTERS = 400

_PREFIX = re.compile(r"^\([^)]*pid=\d+\) |^(ERROR|CRITICAL) \S+ \S+ \[[^\]]*\] ?")
_ABORT = re.compile(r"^\s*what\(\): +(.+)$")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?([A-Za-z_]\w*(?:Error|Exception|Interrupt))(?:: (.*))?$")


def first_error(text: str) -> str:
    """Return the first exception in what processes wrote, as one line; empty if there is none.

    Also one of C++ that ended its process.

    The first, because it caused the others. Its message may continue on lines that are not
    indented; one of them is enough for a sentence.
    """
    lines = [_without_prefix(line) for line in text.splitlines()]
    for index, line in enumerate(lines):
        if found := _ABORT.match(line):
            return one_line(found[1])
        if found := _EXCEPTION.match(line):
            name, message = found.groups()
            following = lines[index + 1].strip() if index + 1 < len(lines) else ""
            return one_line(f"{name}: {message or following}")
    return ""


def _without_prefix(line: str) -> str:
    while found := _PREFIX.match(line):
        line = line[found.end() :]
    return line.rstrip()


def one_line(text: str) -> str:
    """Return a text on one line, shortened to a sentence's length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
