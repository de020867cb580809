"""Directories at URIs: whole or absent, and brought to this host once."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from cast_ray.errors import RunDirectoryError, StorageError
from cast_ray.runs.directories import MARKER
from cast_ray.runs.object_store import check_reachable, list_files, read_bytes, write_bytes
from cast_ray.runs.remote_directories import (
    check_whole_at,
    delete_directory,
    is_whole,
    localized,
    upload_directory,
    upload_share,
    with_retries,
    withdraw,
    write_marker,
)
from cast_ray.runs.uris import Uri
from tests.support.stores import CREDENTIALS, S3Server, environment


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with environment(**CREDENTIALS):
        server = S3Server()
        check_reachable(server.uri("models"), timeout_s=20)
        yield server
        server.stop()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    with environment(CAST_RAY_CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def uri(server: S3Server, tmp_path: Path) -> Uri:
    return server.uri(f"models/{tmp_path.name}/model")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return _directory(tmp_path / "model", weights=b"w" * 1000)


def _directory(path: Path, *, weights: bytes) -> Path:
    (path / "sub").mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    (path / "sub" / "notes.txt").write_text("below")
    return path


def _content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != MARKER
    }


def test_a_directory_comes_back_as_it_went(
    uri: Uri, model: Path, tmp_path: Path, cache: Path
) -> None:
    upload_directory(model, uri)
    assert is_whole(uri)
    check_whole_at(uri)
    assert _content(localized(uri)) == _content(model)


def test_a_local_path_is_left_alone(model: Path) -> None:
    assert localized(model) == model
    assert localized(str(model)) == model
    assert is_whole(model)
    assert not is_whole(model / "nothing")


_KILLED = """
import os, sys
from pathlib import Path
import cast_ray.runs.remote_directories as module
sent = []
def upload(path, uri, upload=module.upload_file):
    if len(sent) == 2:
        os.kill(os.getpid(), 9)
    sent.append(path)
    return upload(path, uri)
module.upload_file, module._FILES_AT_ONCE = upload, 1
module.upload_directory(Path(sys.argv[1]), module.Uri(sys.argv[2]))
"""


def test_an_upload_that_was_killed_is_not_read_as_whole(
    uri: Uri, model: Path, tmp_path: Path
) -> None:
    """Neither where nothing was before, nor over an older directory."""
    for _ in ("new", "over an older one"):
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(model), uri], timeout=60)
        assert killed.returncode == -signal.SIGKILL
        assert len(list_files(uri)) >= 2  # it had begun
        assert not is_whole(uri)
        with pytest.raises(RunDirectoryError, match=r"complete\.json"):
            check_whole_at(uri)
        upload_directory(model, uri)
        assert is_whole(uri)


def test_what_the_marker_does_not_name_is_not_read(uri: Uri, model: Path, cache: Path) -> None:
    upload_directory(model, uri)
    write_bytes(uri / "model-00002.safetensors", b"left over")
    assert _content(localized(uri)) == _content(model)


def test_the_shares_of_all_ranks_are_one_directory(uri: Uri, tmp_path: Path, cache: Path) -> None:
    shares: dict[str, dict[str, int]] = {}
    withdraw(uri)
    for rank in range(3):
        place = tmp_path / f"rank{rank}"
        place.mkdir()
        (place / f"part-{rank}").write_text(f"of rank {rank}")
        shares |= upload_share(place, uri)
        assert not is_whole(uri)
    write_marker(uri, shares)
    assert sorted(_content(localized(uri))) == ["part-0", "part-1", "part-2"]


def test_a_damaged_byte_is_found_where_it_arrives(uri: Uri, model: Path, cache: Path) -> None:
    upload_directory(model, uri)
    write_bytes(uri / "model.safetensors", b"w" * 999 + b"v")
    check_whole_at(uri)  # sizes alone
    with pytest.raises(RunDirectoryError, match=r"model\.safetensors.*checksum"):
        localized(uri)
    assert not list((cache / "localized").rglob("*.safetensors"))
    write_bytes(uri / "model.safetensors", b"w" * 998)
    with pytest.raises(RunDirectoryError, match=r" 1000 .* 998\b"):
        check_whole_at(uri)


def test_a_copy_is_brought_once_and_anew_when_the_store_has_another(
    uri: Uri, model: Path, server: S3Server, tmp_path: Path, cache: Path
) -> None:
    upload_directory(model, uri)
    first = localized(uri)
    brought = (first / "model.safetensors").stat().st_mtime_ns
    assert localized(uri) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == brought
    time.sleep(1.1)  # S3 counts in seconds
    upload_directory(_directory(tmp_path / "other", weights=b"x" * 1000), uri)
    assert (localized(uri) / "model.safetensors").read_bytes() == b"x" * 1000
    assert (first / "model.safetensors").read_bytes() == b"w" * 1000  # somebody may use it


def test_a_copy_that_lost_a_file_is_brought_again(uri: Uri, model: Path, cache: Path) -> None:
    upload_directory(model, uri)
    copy = localized(uri)
    (copy / "model.safetensors").write_bytes(b"")  # as after the machine's fall
    assert _content(localized(uri)) == _content(model)


def test_a_tokenizer_comes_without_the_weights(uri: Uri, model: Path, cache: Path) -> None:
    upload_directory(model, uri)
    light = localized(uri, with_weights=False)
    assert sorted(_content(light)) == ["config.json", "sub/notes.txt"]
    assert _content(localized(uri)) == _content(model)


def test_a_model_that_a_user_put_there_needs_no_marker(uri: Uri, cache: Path) -> None:
    write_bytes(uri / "config.json", b"{}")
    assert _content(localized(uri)) == {"config.json": b"{}"}


def test_one_file_is_localized_under_its_name(uri: Uri, cache: Path) -> None:
    write_bytes(uri / "puzzles.parquet", b"rows")
    write_bytes(uri / "other", b"not asked for")
    copy = localized(uri / "puzzles.parquet")
    assert (copy.name, copy.read_bytes()) == ("puzzles.parquet", b"rows")
    assert len(list(copy.parent.iterdir())) == 1
    with pytest.raises(StorageError, match=r"nowhere.*path"):
        localized(uri / "nowhere")


def _localize(uri: Uri, together: Barrier, answers: multiprocessing.Queue[tuple[str, int]]) -> None:
    together.wait(timeout=60)
    copy = localized(uri)
    answers.put((str(copy), (copy / "model.safetensors").stat().st_ino))


def test_processes_that_ask_at_once_share_one_copy(uri: Uri, cache: Path, tmp_path: Path) -> None:
    upload_directory(_directory(tmp_path / "large", weights=b"l" * 30_000_000), uri)
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[str, int]] = context.Queue()
    together = context.Barrier(3)
    asking = [context.Process(target=_localize, args=(uri, together, answers)) for _ in range(3)]
    for process in asking:
        process.start()
    copies = {answers.get(timeout=60) for _ in asking}
    for process in asking:
        process.join()
    assert len(copies) == 1  # the same file, not one after the other in its place
    weights = list((cache / "localized").rglob("*.safetensors"))
    assert len(weights) == 1


def test_a_directory_is_deleted_with_its_marker_first(uri: Uri, model: Path) -> None:
    upload_directory(model, uri)
    delete_directory(uri)
    assert list_files(uri) == []


def test_an_upload_waits_for_a_store_that_comes_back(
    uri: Uri, model: Path, server: S3Server, cache: Path
) -> None:
    server.stop()
    back = threading.Timer(2.0, server.start)
    back.start()
    upload_directory(model, uri)
    back.join()
    assert _content(localized(uri)) == _content(model)


def test_patience_ends_with_the_stores_own_words(server: S3Server) -> None:
    started = time.monotonic()
    with pytest.raises(StorageError, match=r"no-bucket/x.* exist"):
        with_retries(lambda: read_bytes(server.uri("no-bucket/x")), patience_s=2)
    assert 0.5 < time.monotonic() - started < 10
