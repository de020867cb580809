"""Tables in Markdown that are also easy to read in a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

ABSENT = "—"
"""The cell of what is not defined or not known."""

_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, num_texts: int = 1
) -> str:
    """Return a table with columns of even width.

    Args:
        header: names of the columns.
        rows: cells, as many as columns; any text is shown as it is.
        num_texts: leading columns that hold texts and stand left; the others stand right.
    """
    lines = [[_cell(text) for text in row] for row in (header, *rows)]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*lines, strict=True)]
    rule = [
        "-" * width if place < num_texts else "-" * (width - 1) + ":"
        for place, width in enumerate(widths)
    ]
    padded = [
        [
            cell.ljust(width) if place < num_texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (padded[0], rule, *padded[1:]))


def with_best_bold(values: Sequence[float | None], cells: Sequence[str]) -> list[str]:
    """Return a column's cells with the largest value in bold, ties too; not where it is alone.

    Values that look the same in percent with one decimal tie.
    """
    shown = [None if value is None else round(100 * value, 1) for value in values]
    known = [value for value in shown if value is not None]
    if len(known) < 2:
        return list(cells)
    best = max(known)
    return [
        f"**{cell}**" if value == best else cell for value, cell in zip(shown, cells, strict=True)
    ]


def percent(value: float | None) -> str:
    """Return a share in percent with one decimal, without a sign for it."""
    return ABSENT if value is None else f"{100 * value:.1f}"


def _cell(text: str) -> str:
    """Return a text that neither ends its cell nor its line, nor is read as HTML."""
    one_line = " ".join(text.split()).replace("|", "\\|")
    return _TAG.sub("&lt;", one_line)
