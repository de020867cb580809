"""A real Chromium that visits the service's page, and whatever it should not have met there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}
PATIENCE_MS = 30_000
"""The machine may be busy: far longer than anything takes."""
_REFUSED = "Failed to load resource"
"""What the browser itself writes of every answer of 400 and above."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give Debian's Chromium."""
    path = shutil.which("chromium")
    if path is None:
        missing = "chromium is missing: apt-get install chromium"
        assert "CAST_RAY_TEST_PAGE" not in os.environ, missing  # as .ci/run sets it
        pytest.skip(missing)
    with sync_playwright() as playwright:
        # Root in a container has no sandbox; the page is our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page of the service, and what it did that it must not do.

    Without slots: Playwright notes something on an object whose methods listen.
    """

    page: Page
    address: str
    """Of the service, without a slash at the end."""
    problems: list[str] = field(default_factory=list)

    def open(self, hash_part: str) -> Page:
        """Go to a view of the page, such as ``#/runs``."""
        self.page.goto(f"{self.address}/{hash_part}")
        return self.page

    def api(self, path: str, body: dict[str, Any]) -> Any:
        """Ask the service itself, beside the page. Any: its JSON."""
        answer = self.page.request.post(f"{self.address}/api/{path}", data=body)
        assert answer.ok, answer.text()
        return answer.json()

    def check_accessibility(self) -> None:
        """Let axe look at the page as it is; everything that can be unfolded is unfolded."""
        for fold in self.page.locator("details").all():
            fold.evaluate("fold => { fold.open = true; }")
        found = Axe().run(self.page).response["violations"]
        assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found] == []

    def check_width(self) -> None:
        """The page is not wider than its window."""
        assert self.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_REFUSED):
            self.problems.append(message.text)

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.address and parts.scheme != "data":
            self.problems.append(f"a request to another host: {request.url}")


@contextmanager
def visit(browser: Browser, address: str, **settings: Any) -> Iterator[Visit]:
    """Give a page in a window of its own; at the end there must have been no problem.

    Args:
        browser: from ``chromium``.
        address: of the service.
        settings: of Playwright's context, such as ``DESKTOP`` or ``color_scheme``.
    """
    context = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE_MS)
    visited = Visit(context.new_page(), address)
    visited.page.on("console", visited._heard)
    visited.page.on("request", visited._asked)
    visited.page.on("pageerror", lambda error: visited.problems.append(str(error)))
    yield visited
    context.close()
    assert visited.problems == []
