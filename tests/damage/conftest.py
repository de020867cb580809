"""A folder with a file of every kind, and the process that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.damage.made import make_files
from tests.damage.reading import Reading


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("damage") / "the-run"
    make_files(found)
    return found


@pytest.fixture(scope="session")
def reading() -> Iterator[Reading]:
    with Reading() as found:
        yield found
