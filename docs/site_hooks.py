"""What ``mkdocs build`` does to pages that are also read as they are in the repository.

Equations in ``math`` fences become MathML, which browsers draw by themselves; links to files of the
repository, which the site does not have, become the names of these files.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_MATH = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")
_NAMED_CODE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's Markdown as the site wants it."""
    markdown = _MATH.sub(_mathml, markdown)
    markdown = _NAMED_CODE.sub(r'```\1 title="\2"', markdown)
    return _FILE.sub(_file_name, markdown)


def _mathml(found: re.Match[str]) -> str:
    equations = found[1].strip().split("\n\n")
    return "\n".join(
        f'<div class="equation">{convert(one, display="block")}</div>\n' for one in equations
    )


def _file_name(found: re.Match[str]) -> str:
    text, path = found[1], found[2]
    return f"`{path}`" if path.endswith(text.strip("`")) else f"{text} (`{path}`)"
