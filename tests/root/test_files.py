"""A file that is whole or absent, also on a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from cast_ray.errors import EnvironmentSetupError
from cast_ray.files import refusals_named, written_aside
from tests.support.full_disk import full_disk


def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("old")

    with (
        pytest.raises(EnvironmentSetupError, match=r"table.*File too large"),
        full_disk(),
        written_aside(path) as aside,
    ):
        aside.write_bytes(bytes(1001))

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_bug_of_the_writer_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written_aside(tmp_path / "table"):
        _ = 1 / 0

    assert list(tmp_path.iterdir()) == []


def test_success_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("old")

    with written_aside(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_written_through_in_place(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")

    with refusals_named(link) as place:
        place.write_text("new")

    assert link.is_symlink()
    assert (tmp_path / "real").read_text() == "new"
