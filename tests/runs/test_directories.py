"""A directory is whole or it is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from cast_ray.runs.directories import (
    MARKER,
    check_whole,
    make_partial,
    partial_path,
    publish,
    save_refusals_named,
)
from tests.support.full_disk import full_disk


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
    with pytest.raises(RunDirectoryError, match=rf"step-1.*{MARKER}"):
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

    with pytest.raises(RunDirectoryError, match=r"inner/weights.* 3 .* 2\b"):
        check_whole(directory)


def test_missing_file_is_named(tmp_path: Path) -> None:
    directory = written(tmp_path / "step-1", "abc")
    (directory / "inner" / "weights").unlink()

    with pytest.raises(RunDirectoryError, match=r"inner/weights.* 3 .* None"):
        check_whole(directory)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_file_with_a_flipped_bit_is_named(tmp_path: Path, place: int) -> None:
    directory = written(tmp_path / "step-1", "abc")
    data = bytearray(b"abc")
    data[place] ^= 4
    (directory / "inner" / "weights").write_bytes(data)

    with pytest.raises(RunDirectoryError, match=r"inner/weights.*checksum"):
        check_whole(directory)


@pytest.mark.parametrize("place", [1, 18 * 2**20])
def test_damage_is_found_at_either_end_of_a_large_file(tmp_path: Path, place: int) -> None:
    partial = make_partial(tmp_path / "step-1")
    (partial / "weights").write_bytes(bytes(20 * 2**20))
    publish(partial, tmp_path / "step-1")
    with open(tmp_path / "step-1" / "weights", "r+b") as file:
        file.seek(place)
        file.write(b"x")

    with pytest.raises(RunDirectoryError, match=r"weights.*checksum"):
        check_whole(tmp_path / "step-1")


@pytest.mark.parametrize("text", ["", "[]", '{"files": {"inner/weights": 3}}', '{"files": 1}'])
def test_marker_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    directory = written(tmp_path / "step-1", "abc")
    (directory / MARKER).write_text(text)

    with pytest.raises(RunDirectoryError, match=rf"{MARKER}.*damaged"):
        check_whole(directory)


WRITER_THAT_HANGS = """
import sys, time
from pathlib import Path
import torch
from cast_ray.runs.directories import make_partial, publish
from cast_ray.learner.state_shards import write_shards

def tensors():
    for number in range(5):
        if number == int(sys.argv[2]):
            print("reached", flush=True)
            time.sleep(600)
        yield f"tensor {number}", torch.zeros(1000)

directory = Path(sys.argv[1])
partial = make_partial(directory)
write_shards(tensors(), partial, kind="weight", shard_bytes=4000)
publish(partial, directory)
"""


def test_checkpoint_of_a_process_killed_in_the_middle_of_it_is_invisible(tmp_path: Path) -> None:
    written(tmp_path / "step-00005", "abc")
    command = [sys.executable, "-c", WRITER_THAT_HANGS, str(tmp_path / "step-00010"), "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "reached\n"
        writer.kill()

    assert writer.returncode == -signal.SIGKILL
    left = sorted(path.name for path in partial_path(tmp_path / "step-00010").iterdir())
    assert left == ["weight-00001.safetensors", "weight-00002.safetensors"]
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00005"]
    with pytest.raises(RunDirectoryError, match=rf"step-00010.*{MARKER}"):
        check_whole(tmp_path / "step-00010")


def test_publishing_again_replaces_the_older_directory(tmp_path: Path) -> None:
    written(tmp_path / "step-1", "abc")
    written(tmp_path / "step-1", "defg")

    check_whole(tmp_path / "step-1")
    assert (tmp_path / "step-1" / "inner" / "weights").read_text() == "defg"
    assert not partial_path(tmp_path / "step-1").exists()


def test_full_disk_under_a_librarys_writer_is_one_sentence(tmp_path: Path) -> None:
    directory = written(tmp_path / "step-1", "abc")
    weights = {"weight": torch.zeros(100_000)}

    with (
        pytest.raises(EnvironmentSetupError, match=r"step-1.*space"),
        full_disk(),
        save_refusals_named(directory),
    ):
        save_file(weights, make_partial(directory) / "weights")

    check_whole(directory)
