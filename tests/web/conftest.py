"""A browser for each module's tests of the page, and visits to what a module calls ``address``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import DESKTOP, PHONE, Visit, chromium, visit


@pytest.fixture(scope="module")  # its event loop would be in the way of other tests'
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def desktop(browser: Browser, address: str) -> Iterator[Visit]:
    with visit(browser, address, **DESKTOP) as found:
        yield found


@pytest.fixture
def phone(browser: Browser, address: str) -> Iterator[Visit]:
    with visit(browser, address, color_scheme="dark", **PHONE) as found:
        yield found
