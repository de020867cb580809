"""The tables of an evaluation below the main one: how it was played, failures, pass@k, pairs.

Tables in Markdown that are also easy to read in a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cast_ray.evaluation.scores import FAILURES

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


_TITLES = {"alfworld": "ALFWorld", "webshop": "WebShop", "id": "ID"}
_FEW = 8
"""pass@k is shown for every k up to this one, then for powers of two and the last."""


def title_of(name: str) -> str:
    """Return how a game, benchmark or tier is called in tables."""
    return _TITLES.get(name, name.replace("_", " ").title())


def column_title(game: str) -> str:
    """Return how ``GAME:TIER`` is called in tables."""
    name, _, tier = game.partition(":")
    return f"{title_of(name)} {title_of(tier)}"


def _decimals(number: int) -> Callable[[float | None], str]:
    return lambda value: ABSENT if value is None else f"{value:,.{number}f}"


Columns = tuple[tuple[str, str, Callable[[float | None], str]], ...]
"""Heading, name in ``PlayQuality``, how it is written."""
MOVES: Columns = (
    ("regret a turn", "mean_regret", _decimals(2)),
    ("optimal moves %", "optimal_share", percent),
    ("fatal attempts %", "fatal_share", percent),
    ("fatal turn (median)", "median_fatal_turn", _decimals(1)),
    ("turns too many, solved", "excess_turns", _decimals(1)),
)
REVEALS: Columns = (
    ("risk above the safest cell, points", "excess_risk", percent),
    ("provably safe reveals %", "safe_share", percent),
)
COSTS: Columns = (
    ("turns", "turns", _decimals(1)),
    ("answer tokens", "answer_tokens", _decimals(0)),
    ("tokens a turn", "answer_tokens_a_turn", _decimals(0)),
    ("prompt tokens", "prompt_tokens", _decimals(0)),
    ("seconds", "seconds", _decimals(1)),
    ("requests again, in all", "num_retries", _decimals(0)),
    ("US dollars, in all", "price_usd", _decimals(2)),
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
