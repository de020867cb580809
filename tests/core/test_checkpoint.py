"""A directory is whole or it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cast_ray.checkpoint import (
    MARKER,
    check_whole,
    make_partial,
    partial_path,
    publish,
    save_refusals_named,
)
from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from tests.full_disk import full_disk


def written(directory: Path, text: str) -> Path:
    partial = make_partial(directory)
    (partial / "inner").mkdir()
    (partial / "inner" / "weights").write_text(text)
    publish(partial, directory)
    return directory


def test_published_directory_is_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    directory = written(tmp_path / "step-1", "abc")

    check_whole(directory)
    assert (directory / "inner" / "weights").read_text() == "abc"
    assert list(tmp_path.iterdir()) == [directory]


def test_writer_that_died_leaves_no_directory_of_that_name(tmp_path: Path) -> None:
    (make_partial(tmp_path / "step-1") / "weights").write_text("abc")

    assert not (tmp_path / "step-1").exists()
    assert not list(tmp_path.glob("step-*"))
    with pytest.raises(RunDirectoryError, match="no complete checkpoint"):
        check_whole(tmp_path / "step-1")


def test_left_over_of_a_dead_writer_does_not_get_into_the_next(tmp_path: Path) -> None:
    (make_partial(tmp_path / "step-1") / "stale").write_text("abc")

    assert list(make_partial(tmp_path / "step-1").iterdir()) == []


def test_directory_without_its_marker_is_refused(tmp_path: Path) -> None:
    directory = written(tmp_path / "step-1", "abc")
    (directory / MARKER).unlink()

    with pytest.raises(RunDirectoryError, match=MARKER):
        check_whole(directory)


def test_file_cut_short_is_named(tmp_path: Path) -> None:
    directory = written(tmp_path / "step-1", "abc")
    (directory / "inner" / "weights").write_text("ab")

    with pytest.raises(RunDirectoryError, match=r"weights should have 3 bytes but has 2"):
        check_whole(directory)


def test_missing_file_is_named(tmp_path: Path) -> None:
    directory = written(tmp_path / "step-1", "abc")
    (directory / "inner" / "weights").unlink()

    with pytest.raises(RunDirectoryError, match=r"weights should have 3 bytes but has None"):
        check_whole(directory)


def test_publishing_again_replaces_the_older_directory(tmp_path: Path) -> None:
    written(tmp_path / "step-1", "abc")
    written(tmp_path / "step-1", "defg")

    check_whole(tmp_path / "step-1")
    assert (tmp_path / "step-1" / "inner" / "weights").read_text() == "defg"
    assert not partial_path(tmp_path / "step-1").exists()


@pytest.mark.parametrize("save", [torch.save, save_file], ids=["torch", "safetensors"])
def test_full_disk_under_a_librarys_writer_is_one_sentence(
    tmp_path: Path, save: Callable[[dict[str, torch.Tensor], Path], None]
) -> None:
    directory = written(tmp_path / "step-1", "abc")
    weights = {"weight": torch.zeros(100_000)}

    with (
        pytest.raises(EnvironmentSetupError, match=r"step-1 cannot be written \(.*free some space"),
        full_disk(),
        save_refusals_named(directory),
    ):
        save(weights, make_partial(directory) / "weights")

    check_whole(directory)


def test_other_errors_of_torch_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="size"), save_refusals_named(tmp_path):
        torch.zeros(2) @ torch.zeros(3)
