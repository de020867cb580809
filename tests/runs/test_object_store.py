"""Files at URIs: a real S3 server, PyArrow's local file system, fsspec's memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cast_ray.errors import ConfigError, StorageError
from cast_ray.runs import object_store
from cast_ray.runs.object_store import (
    check_reachable,
    delete_file,
    download_file,
    find_file,
    list_files,
    read_bytes,
    upload_file,
    write_bytes,
)
from cast_ray.runs.uris import Uri, path_or_uri
from tests.support.stores import CREDENTIALS, S3Server, environment, silent_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with environment(**CREDENTIALS):
        server = S3Server()
        yield server
        server.stop()


@pytest.fixture(params=["s3", "file", "memory"])
def place(request: pytest.FixtureRequest, server: S3Server, tmp_path: Path) -> Uri:
    name = tmp_path.name.replace("_", "-").replace("[", "-").replace("]", "").lower()
    places = {
        "s3": str(server.uri(f"{name}/run")),
        "file": f"file://{tmp_path}/store/run",
        "memory": f"memory://{name}/run",
    }
    uri = Uri(places[request.param])
    check_reachable(uri, timeout_s=20)
    return uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/run", True),
        ("memory://x", True),
        ("runs/mine", False),
        ("/shared/runs:/mine", False),
        ("C:/runs", False),
        ("://x", False),
    ],
)
def test_a_uri_is_told_from_a_path(text: str, expected: bool) -> None:
    assert isinstance(path_or_uri(text), Uri) is expected


def test_a_uri_with_a_number_sign_is_refused_and_a_path_is_not() -> None:
    assert path_or_uri("runs/a b#1") == Path("runs/a b#1")
    with pytest.raises(ConfigError, match=r"s3://bucket/a b#1.*#"):
        path_or_uri("s3://bucket/a b#1")


def test_options_stay_at_the_end_of_a_uri() -> None:
    uri = Uri("s3://bucket/run?region=eu-west-1&scheme=http")
    below = uri / "trajectories/step-00001.parquet"
    assert below == ("s3://bucket/run/trajectories/step-00001.parquet?region=eu-west-1&scheme=http")
    assert below.name == "step-00001.parquet"
    assert below.parent.parent == uri
    assert Uri("s3://bucket").name == "bucket"
    assert Uri("s3://bucket") / "a" == "s3://bucket/a"


def test_a_file_comes_back_as_it_went(place: Uri, tmp_path: Path) -> None:
    content = bytes(range(256)) * 100_000  # several parts on S3
    (tmp_path / "sent").write_bytes(content)
    uri = place / "a/b.bin"
    upload_file(tmp_path / "sent", uri)
    download_file(uri, tmp_path / "new" / "got")
    assert (tmp_path / "new" / "got").read_bytes() == content
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["got"]
    found = find_file(uri)
    assert found is not None
    assert (found.name, found.num_bytes) == ("b.bin", len(content))
    assert found.changed_ns >= 0


def test_files_are_listed_by_name_without_what_is_hidden(place: Uri) -> None:
    for name in ("b", "a/c", "a/.hidden", ".x.partial"):
        write_bytes(place / name, name.encode())
    write_bytes(place.parent / "run-2", b"a neighbour of the same beginning")
    assert [(file.name, file.num_bytes) for file in list_files(place)] == [("a/c", 3), ("b", 1)]
    assert list_files(place / "nothing") == []


def test_a_file_is_overwritten_and_deleted(place: Uri) -> None:
    uri = place / "x"
    write_bytes(uri, b"first and longer")
    write_bytes(uri, b"second")
    assert read_bytes(uri) == b"second"
    delete_file(uri)
    delete_file(uri)  # gone already
    assert find_file(uri) is None
    assert list_files(place) == []
    with pytest.raises(StorageError, match=r"/x.* exist"):
        read_bytes(uri)


def test_the_probe_leaves_nothing(place: Uri, tmp_path: Path) -> None:
    check_reachable(place, timeout_s=20)
    assert not list((tmp_path / "store").rglob("*.probe*"))
    delete_file(place / "other")
    assert list_files(place.parent) == []


class Unreadable:
    """A local file whose disk fails in the middle."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115  closed below
        self._num_reads = 0

    def read(self, size: int) -> bytes:
        """Read once, then fail."""
        self._num_reads += 1
        if self._num_reads > 1:
            raise OSError(5, "Input/output error")
        return self._file.read(size)

    def __enter__(self) -> Unreadable:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_a_file_that_breaks_off_is_not_there(
    place: Uri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyArrow's streams, closed after an error, would leave what they had so far."""
    (tmp_path / "sent").write_bytes(b"x" * 40_000_000)
    monkeypatch.setattr(object_store, "open", lambda path, mode: Unreadable(path), raising=False)
    with pytest.raises(StorageError, match="Input/output error"):
        upload_file(tmp_path / "sent", place / "sent")
    assert list_files(place) == []


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("nosuch://bucket/run", "nosuch://"),
        ("az://container/run", "adlfs"),
        ("s3://key:word@bucket/run", "credentials"),
        ("abfs://c@account/run?account_key=x", "credentials"),
        ("s3://bucket/run?endpoint=x", "option endpoint"),
        ("s3://bucket/run?endpoint_override=127.0.0.1:1&scheme=http", "network.*endpoint_override"),
    ],
)
def test_a_store_that_cannot_be_is_one_sentence(uri: str, message: str) -> None:
    started = time.monotonic()
    with pytest.raises(StorageError, match=message) as raised:
        check_reachable(Uri(uri), timeout_s=20)
    assert time.monotonic() - started < 10
    text = str(raised.value)
    assert "\n" not in text
    assert "word" not in text
    assert ";" in text or ":" in text


def test_a_missing_bucket_is_one_sentence(server: S3Server) -> None:
    uri = server.uri("not-made/run", options="")
    with pytest.raises(StorageError, match=r"not-made.*bucket") as raised:
        check_reachable(uri, timeout_s=20)
    assert "Request ID" not in str(raised.value)


def test_refused_credentials_are_one_sentence(server: S3Server) -> None:
    uri = server.uri("closed/run")
    check_reachable(uri, timeout_s=20)
    with (
        server.refusing(),
        pytest.raises(StorageError, match=r"closed/run.*AWS_ACCESS_KEY_ID"),
    ):
        check_reachable(uri, timeout_s=20)
    check_reachable(uri, timeout_s=20)


def test_a_silent_store_ends_the_wait_and_the_process() -> None:
    program = (
        "import sys, time\n"
        "from cast_ray.errors import StorageError\n"
        "from cast_ray.runs.object_store import check_reachable\n"
        "from cast_ray.runs.uris import Uri\n"
        "started = time.monotonic()\n"
        "try:\n"
        "    check_reachable(Uri(sys.argv[1]), timeout_s=2)\n"
        "except StorageError as error:\n"
        "    print(error, round(time.monotonic() - started))\n"
    )
    started = time.monotonic()
    with environment(**CREDENTIALS), silent_server() as address:
        uri = f"s3://bucket/run?endpoint_override={address}&scheme=http"
        done = subprocess.run(
            [sys.executable, "-c", program, uri], capture_output=True, text=True, timeout=90
        )
    assert "did not answer" in done.stdout, done.stderr
    assert int(done.stdout.split()[-1]) <= 2
    assert done.returncode == 0
    assert time.monotonic() - started < 30


def test_a_store_that_comes_back_is_used_again(server: S3Server) -> None:
    uri = server.uri("comes-back/run")
    check_reachable(uri, timeout_s=20)
    write_bytes(uri / "x", b"1")
    server.stop()
    try:
        with pytest.raises(StorageError, match=r"comes-back/run.*network.*endpoint_override"):
            write_bytes(uri / "x", b"2")
    finally:
        server.start()
    assert read_bytes(uri / "x") == b"1"
