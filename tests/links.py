"""Ask every address outside that a page links to whether it still answers: `make links`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\((https?://[^)\s]+)\)")
_TIMEOUT_S = 20.0


def external_links() -> dict[str, str]:
    """Return each address with a page that links to it."""
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
    return {link: page.name for page in pages for link in _LINK.findall(page.read_text())}


def problem(link: str) -> str | None:
    """Return what is wrong with an address, None if it answers."""
    try:
        answer = httpx.get(link, follow_redirects=True, timeout=_TIMEOUT_S)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return f"status {answer.status_code}" if answer.status_code >= 400 else None


def problems(links: dict[str, str]) -> Iterator[str]:
    """Yield a line for every address that does not answer."""
    with ThreadPoolExecutor(8) as pool:
        for (link, page), found in zip(links.items(), pool.map(problem, links), strict=True):
            if found is not None:
                yield f"{page}: {link}: {found}"


if __name__ == "__main__":
    links = external_links()
    lines = list(problems(links))
    print("\n".join([*lines, f"{len(links) - len(lines)} of {len(links)} addresses answer"]))
    sys.exit(bool(lines))
