"""The recorded playthroughs are played again, letter by letter."""

from __future__ import annotations

import pytest

from tests.golden.make import FOLDER, GOLDEN


@pytest.mark.parametrize("name", GOLDEN)
def test_playthrough_is_as_recorded(name: str) -> None:
    assert GOLDEN[name]() == (FOLDER / name).read_text()
