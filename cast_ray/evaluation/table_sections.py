"""Markdown tables that are easy to read in a terminal, and the minor tables of an evaluation.

``tables`` has the main table and the transfer table, and puts the sections together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cast_ray.evaluation.scores import FAILURES

ABSENT = "—"
"""Cell of a value that is undefined or unknown."""

_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, num_texts: int = 1
) -> str:
    """Return a table with columns of even width.

    Args:
        header: names of the columns.
        rows: cells, as many as columns, with any text.
        num_texts: number of leading columns of text, aligned left; the others are aligned right.
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


def percents(values: Sequence[float | None]) -> list[str]:
    """Return a column of shares in percent, with the largest in bold if there are others.

    Values with the same rounded percentage tie, and are all bold.
    """
    shown = [None if value is None else round(100 * value, 1) for value in values]
    known = [value for value in shown if value is not None]
    best = max(known) if len(known) > 1 else None
    return [
        f"**{percent(value)}**" if best is not None and rounded == best else percent(value)
        for rounded, value in zip(shown, values, strict=True)
    ]


def percent(value: float | None) -> str:
    """Return a share in percent with one decimal, without the percent sign."""
    return ABSENT if value is None else f"{100 * value:.1f}"


def _cell(text: str) -> str:
    """Return a text that ends neither its cell nor its line, and is not read as HTML."""
    return _TAG.sub("&lt;", " ".join(text.split()).replace("|", "\\|"))


_TITLES = {"alfworld": "ALFWorld", "webshop": "WebShop", "id": "ID"}
_FEW = 8
"""pass@k is shown for every k up to this, then for powers of two and the last."""


def title_of(name: str) -> str:
    """Return the title of a game, benchmark or tier in tables (a described tier is its own)."""
    return _TITLES.get(name, name if "@" in name else name.replace("_", " ").title())


def column_title(game: str) -> str:
    """Return the title of ``GAME:TIER`` in tables."""
    name, _, tier = game.partition(":")
    return f"{title_of(name)} {title_of(tier)}"


def _decimals(number: int) -> Callable[[float | None], str]:
    return lambda value: ABSENT if value is None else f"{value:,.{number}f}"


def _dollars(value: float | None) -> str:
    return f"{value:.2g}" if value and value < 1 else _decimals(2)(value)


Columns = tuple[tuple[str, str, Callable[[float | None], str]], ...]
"""Heading, name in ``PlayQuality``, format."""
MOVES: Columns = (
    ("regret per turn", "mean_regret", _decimals(2)),
    ("optimal moves %", "optimal_share", percent),
    ("fatal attempts %", "fatal_share", percent),
    ("fatal turn (median)", "median_fatal_turn", _decimals(1)),
    ("excess turns, solved", "excess_turns", _decimals(1)),
)
REVEALS: Columns = (
    ("risk above the safest cell, points", "excess_risk", percent),
    ("provably safe reveals %", "safe_share", percent),
)
COSTS: Columns = (
    ("turns", "turns", _decimals(1)),
    ("answer tokens", "answer_tokens", _decimals(0)),
    ("tokens per turn", "answer_tokens_per_turn", _decimals(0)),
    ("prompt tokens", "prompt_tokens", _decimals(0)),
    ("seconds", "seconds", _decimals(1)),
    ("retries, total", "num_retries", _decimals(0)),
    ("US dollars, total", "price_usd", _dollars),
)


def quality_table(document: Mapping[str, Any], columns: Columns) -> str:
    rows = [
        [label, column_title(game), *(write(quality[name]) for _, name, write in columns)]
        for label, model in document["models"].items()
        for game, quality in model["quality"].items()
        if any(quality[name] is not None for _, name, _ in columns)
    ]
    header = ["model", "game", *(heading for heading, _, _ in columns)]
    return markdown_table(header, rows, num_texts=2) if rows else ""


def failure_table(document: Mapping[str, Any]) -> str:
    failures = {
        (label, game): counts
        for label, model in document["models"].items()
        for game, counts in model["failures"].items()
    }
    seen = [why for why in FAILURES if any(counts[why] for counts in failures.values())]
    rows = [
        [
            label,
            column_title(game),
            str(document["models"][label]["results"][game]["n"]),
            str(sum(counts.values())),
            *(str(counts[why]) for why in seen),
        ]
        for (label, game), counts in failures.items()
    ]
    header = ["model", "game", "attempts", "failed", *(why.replace("_", " ") for why in seen)]
    return markdown_table(header, rows, num_texts=2) if seen else ""


def pass_table(document: Mapping[str, Any]) -> str:
    most = document["attempts"]
    shown = [k for k in range(1, most + 1) if k <= _FEW or k.bit_count() == 1 or k == most]
    rows = [
        [label, column_title(game), *(percent(chances[k - 1]) for k in shown)]
        for label, model in document["models"].items()
        for game, chances in model["pass_at_k"].items()
    ]
    header = ["model", "game", *(f"pass@{k}" for k in shown)]
    return markdown_table(header, rows, num_texts=2)


def comparison_table(document: Mapping[str, Any]) -> str:
    header = [
        "a", "b", "game", "a - b, points", "p", "p (Holm)", "only a", "only b", "both", "neither",
    ]  # fmt: skip
    rows = [
        [
            pair["a"],
            pair["b"],
            column_title(pair["game"]),
            f"{100 * pair['difference']:+.1f} [{percent(pair['low'])}, {percent(pair['high'])}]",
            _p(pair["p_value"]),
            _p(pair["p_holm"]),
            *(str(pair[name]) for name in ("only_a", "only_b", "both", "neither")),
        ]
        for pair in document["comparisons"]
    ]
    return markdown_table(header, rows, num_texts=3) if rows else ""


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
