"""The numbers in a rendered text, apart from the words around them."""

from __future__ import annotations

import re


def figures_in(text: str) -> str:
    """Return the numbers of a text in order, each with its sign and percent sign, as one text."""
    return " ".join(re.findall(r"[+−]?\d+(?:,\d{3})*(?:\.\d+)?%?", text))
