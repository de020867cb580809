"""Files at a URI: ``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, ``file://``, or any of fsspec's.

A file is whole or absent: an object store has it so, elsewhere it is written aside and renamed.
Whole directories are for ``cast_ray.stored_directory``.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from cast_ray.errors import StorageError
from cast_ray.file_systems import opened
from cast_ray.files import written_aside
from cast_ray.storage_refusal import refusal
from cast_ray.time_limit import answer_within
from cast_ray.uris import child_uri, name_of, with_options

_BLOCK_BYTES = 16 * 2**20
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Have no folders to make, and an object is there when the last byte of it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file below a URI."""

    name: str
    """Relative to that URI, with slashes."""
    num_bytes: int
    changed_ns: int
    """When it was last written, by the store's clock; 0 where the store does not say."""


def check_reachable(uri: str, *, timeout_s: float) -> None:
    """Write, read and delete a small object below a URI.

    Raises:
        StorageError: one of them failed, or the store did not answer within ``timeout_s``.
    """
    content = b"cast_ray was here"
    is_s3 = urlsplit(uri).scheme == "s3"
    # One that waits longer would keep this process from its end.
    waits = f"request_timeout_s={max(timeout_s / 2, 1):g}&max_attempts=1" if is_s3 else ""
    probe = child_uri(with_options(uri, waits), f".probe-{uuid.uuid4().hex}")

    def question() -> None:
        with _refusals_named(uri):
            filesystem, path = opened(probe)
            if "allow_bucket_creation=true" in urlsplit(uri).query:
                filesystem.create_dir(urlsplit(uri).netloc)
            with _sink(filesystem, path) as sink:
                sink.write(content)
            with filesystem.open_input_stream(path) as source:
                if source.read() != content:
                    raise StorageError(f"{uri} gives back other bytes than it got: use another")
            filesystem.delete_file(path)

    try:
        answer_within(timeout_s, question, name="check storage")
    except TimeoutError:
        raise StorageError(
            f"{uri} did not answer within {timeout_s:g} s: check the network, its proxies and "
            "endpoint_override"
        ) from None


def list_files(uri: str) -> list[StoredFile]:
    """Return all files below a URI by name, none where nothing is; hidden ones are left out.

    Raises:
        StorageError: the store refuses or cannot be reached; so do all functions here.
    """
    with _refusals_named(uri):
        filesystem, path = opened(uri)
        found = filesystem.get_file_info(
            fs.FileSelector(path, recursive=True, allow_not_found=True)
        )
    start = len(path.strip("/")) + 1
    files = [
        _stored(info, info.path.strip("/")[start:])
        for info in found
        if info.type == fs.FileType.File and not info.base_name.startswith(".")
    ]
    return sorted(files, key=lambda file: file.name)


def find_file(uri: str) -> StoredFile | None:
    """Return the file at a URI, by its own name; None where there is none."""
    with _refusals_named(uri):
        filesystem, path = opened(uri)
        info = filesystem.get_file_info(path)
    return _stored(info, name_of(uri)) if info.type == fs.FileType.File else None


def read_bytes(uri: str) -> bytes:
    """Return the content of a small file."""
    with _refusals_named(uri):
        filesystem, path = opened(uri)
        with filesystem.open_input_stream(path) as source:
            return source.read()


def write_bytes(uri: str, content: bytes) -> None:
    """Write a small file."""
    with _refusals_named(uri), _sink(*opened(uri)) as sink:
        sink.write(content)


def upload_file(path: Path, uri: str) -> int:
    """Copy a local file to a URI, which has no file or an older one if this fails.

    Returns:
        How many bytes there were.
    """
    with open(path, "rb") as source, _refusals_named(uri):
        filesystem, place = opened(uri)
        with _sink(filesystem, place) as sink:
            shutil.copyfileobj(source, sink, _BLOCK_BYTES)
        num_bytes = source.tell()
        found = filesystem.get_file_info(place).size
        if found != num_bytes:
            raise StorageError(f"{uri} has {found} bytes of the {num_bytes} sent: send it again")
    return num_bytes


def download_file(uri: str, path: Path) -> None:
    """Copy the file at a URI to a local path, where it is whole or absent.

    Raises:
        StorageError: as above.
        EnvironmentSetupError: it cannot be written here.
    """
    with _refusals_named(uri):
        filesystem, place = opened(uri)
        source = filesystem.open_input_file(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, written_aside(path) as aside, open(aside, "wb") as sink:
        left = source.size()
        while left:
            with _refusals_named(uri):  # the store's, not the disk's
                block = source.read(min(left, _BLOCK_BYTES))
                if not block:
                    raise StorageError(f"{uri} ended {left} bytes too early: read it again")
            sink.write(block)
            left -= len(block)


def delete_file(uri: str) -> None:
    """Delete a file if it is there."""
    with _refusals_named(uri), suppress(FileNotFoundError):
        filesystem, path = opened(uri)
        filesystem.delete_file(path)


def _stored(info: fs.FileInfo, name: str) -> StoredFile:
    return StoredFile(name=name, num_bytes=info.size or 0, changed_ns=info.mtime_ns or 0)


@contextmanager
def _sink(filesystem: fs.FileSystem, path: str) -> Iterator[Any]:  # Any: PyArrow has no types
    """Yield a stream; what is written has its name when the block succeeds, and not before."""
    aside = path
    if filesystem.type_name not in _OBJECT_STORES:
        folder, _, name = path.rpartition("/")
        filesystem.create_dir(folder, recursive=True)
        aside = f"{folder}/.{name}.{uuid.uuid4().hex}.partial"
    stream = filesystem.open_output_stream(aside)
    try:
        yield stream
        stream.close()
    except BaseException:
        # A stream that is closed leaves what it has as an object, also after an error.
        with suppress(OSError):
            stream.close()
        with suppress(OSError):
            filesystem.delete_file(aside)
        raise
    if aside != path:
        filesystem.move(aside, path)


@contextmanager
def _refusals_named(uri: str) -> Iterator[None]:
    """Say in one sentence what a store refused.

    Raises:
        StorageError: it refused something.
    """
    try:
        yield
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise refusal(uri, error) from error
