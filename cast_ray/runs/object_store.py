"""Files at a URI: ``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, ``file://``, or any of fsspec's.

A file is complete or absent: object stores work that way, elsewhere it is written under another
name and renamed. PyArrow's file system is used where it knows the scheme, fsspec's otherwise.
Credentials come from the environment and are never part of a URI. S3 gets time-outs and few
attempts, which PyArrow's own reading of a URI cannot express. For directories see
``cast_ray.runs.remote_directories``.
"""

from __future__ import annotations

import functools
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import fsspec
import pyarrow as pa
from pyarrow import fs

from cast_ray.errors import StorageError
from cast_ray.files import is_below, written_aside
from cast_ray.runs.store_errors import refusal
from cast_ray.runs.uris import Uri
from cast_ray.timeouts import answer_within

_CONNECT_S, _REQUEST_S, _ATTEMPTS = 5, 20, 3
"""Of one request, so that a dead end is known within a minute; callers that must succeed retry."""
_SECRET_WORDS = ("key", "secret", "token", "password")
_S3_SWITCHES = {"allow_bucket_creation", "allow_bucket_deletion", "force_virtual_addressing"}
_S3_OPTIONS = _S3_SWITCHES | {
    "endpoint_override",
    "scheme",
    "region",
    "tls_ca_file_path",
    "request_timeout_s",
    "max_attempts",
}
_BLOCK_BYTES = 16 * 2**20
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""These have no folders to make, and an object appears with its last byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file below a URI."""

    name: str
    """Relative to that URI, with slashes."""
    num_bytes: int
    changed_ns: int
    """When it was last written, by the store's clock; 0 if the store does not say."""

    def __post_init__(self) -> None:
        if not is_below(self.name):  # it becomes a path here
            raise StorageError(
                f"the store lists a file {self.name!r}, which leads out of its folder: do not read "
                "from there"
            )


def opened(uri: Uri) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI and the path in it."""
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    if parts.password or any(word in key for key in options for word in _SECRET_WORDS):
        raise StorageError(
            f"the URI at {parts.hostname} contains credentials, which would be stored with the "
            "run: set them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    filesystem, root = _file_system(parts.scheme, parts.netloc, parts.query)
    return filesystem, (root.rstrip("/") + parts.path).rstrip("/")


@functools.lru_cache(maxsize=64)
def _file_system(scheme: str, netloc: str, query: str) -> tuple[fs.FileSystem, str]:
    """Return a file system and the path in it that all paths of these URIs begin with."""
    if scheme == "s3":
        return _s3(netloc, dict(parse_qsl(query))), netloc
    uri = Uri(urlunsplit((scheme, netloc, "/", query, "")))
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in query:
        uri = uri.with_options(f"retry_limit_seconds={_REQUEST_S}")
    if scheme in ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file"):
        return fs.FileSystem.from_uri(str(uri))
    found, root = fsspec.core.url_to_fs(f"{scheme}://{netloc}")
    return fs.PyFileSystem(fs.FSSpecHandler(found)), root


def _s3(bucket: str, options: dict[str, str]) -> fs.S3FileSystem:
    """Return S3 with time-outs, for which a URI has no options."""
    if unknown := options.keys() - _S3_OPTIONS:
        raise StorageError(
            f"s3://{bucket}: unknown option {', '.join(sorted(unknown))}: the options are "
            f"{', '.join(sorted(_S3_OPTIONS))}"
        )
    region = options.pop("region", None) or os.environ.get("AWS_REGION")
    region = region or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        has_endpoint = "endpoint_override" in options or "AWS_ENDPOINT_URL" in os.environ
        region = "us-east-1" if has_endpoint else fs.resolve_s3_region(bucket)
    switches = {key: options.pop(key) == "true" for key in _S3_SWITCHES & options.keys()}
    return fs.S3FileSystem(
        region=region,
        connect_timeout=_CONNECT_S,
        request_timeout=float(options.pop("request_timeout_s", _REQUEST_S)),
        retry_strategy=fs.AwsStandardS3RetryStrategy(
            max_attempts=int(options.pop("max_attempts", _ATTEMPTS))
        ),
        **options,
        **switches,
    )


def check_reachable(uri: Uri, *, timeout_s: float) -> None:
    """Write, read and delete a small object below a URI.

    Raises:
        StorageError: one of them failed, or the store did not answer within ``timeout_s``.
    """
    parts, content = urlsplit(uri), b"cast_ray was here"
    # A request that waits longer would keep this process from ending.
    waits = f"request_timeout_s={max(timeout_s / 2, 1):g}&max_attempts=1"
    probe = uri.with_options(waits if parts.scheme == "s3" else "") / f".probe-{uuid.uuid4().hex}"

    def ask() -> None:
        with _refusals_named(uri):
            filesystem, path = opened(probe)
            if "allow_bucket_creation=true" in parts.query:
                filesystem.create_dir(parts.netloc)
            with _sink(filesystem, path) as sink:
                sink.write(content)
            with filesystem.open_input_stream(path) as source:
                if source.read() != content:
                    raise StorageError(f"{uri} returns other bytes than were written: use another")
            filesystem.delete_file(path)

    try:
        answer_within(timeout_s, ask, name="check storage")
    except TimeoutError:
        raise StorageError(
            f"{uri} did not answer within {timeout_s:g} s: check the network, its proxies and "
            "endpoint_override"
        ) from None


def list_files(uri: Uri) -> list[StoredFile]:
    """Return all files below a URI, sorted by name, without hidden ones; there may be none.

    Raises:
        StorageError: the store refuses or cannot be reached; so do all functions here.
    """
    with _refusals_named(uri):
        filesystem, path = opened(uri)
        found = filesystem.get_file_info(
            fs.FileSelector(path, recursive=True, allow_not_found=True)
        )
    top = f"{path.strip('/')}/"
    files = [
        # A path that is not below the folder is not a name in it: StoredFile refuses it.
        _stored(info, info.path.lstrip("/").removeprefix(top))
        for info in found
        if info.type == fs.FileType.File and not info.base_name.startswith(".")
    ]
    return sorted(files, key=lambda file: file.name)


def find_file(uri: Uri) -> StoredFile | None:
    """Return the file at a URI, or None if there is none."""
    with _refusals_named(uri):
        filesystem, path = opened(uri)
        info = filesystem.get_file_info(path)
    return _stored(info, uri.name) if info.type == fs.FileType.File else None


def read_bytes(uri: Uri) -> bytes:
    """Return the content of a small file."""
    with _refusals_named(uri):
        filesystem, path = opened(uri)
        with filesystem.open_input_stream(path) as source:
            return source.read()


def write_bytes(uri: Uri, content: bytes) -> None:
    """Write a small file."""
    with _refusals_named(uri), _sink(*opened(uri)) as sink:
        sink.write(content)


def upload_file(path: Path, uri: Uri) -> None:
    """Copy a local file to a URI; if this fails, there is no file or the older one."""
    with open(path, "rb") as source, _refusals_named(uri):
        filesystem, target = opened(uri)
        with _sink(filesystem, target) as sink:
            shutil.copyfileobj(source, sink, _BLOCK_BYTES)
        num_bytes = source.tell()
        found = filesystem.get_file_info(target).size
        if found != num_bytes:
            raise StorageError(f"{uri} has {found} bytes of the {num_bytes} sent: send it again")


def download_file(uri: Uri, path: Path) -> None:
    """Copy the file at a URI to a local path, where it is complete or absent.

    Raises:
        StorageError: as above.
        EnvironmentSetupError: it cannot be written here.
    """
    with _refusals_named(uri):
        filesystem, source_path = opened(uri)
        source = filesystem.open_input_file(source_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, written_aside(path) as aside, open(aside, "wb") as sink:
        left = source.size()
        while left:
            with _refusals_named(uri):  # errors of the store, not of the disk
                block = source.read(min(left, _BLOCK_BYTES))
                if not block:
                    raise StorageError(f"{uri} ended {left} bytes too early: read it again")
            sink.write(block)
            left -= len(block)


def delete_file(uri: Uri) -> None:
    """Delete a file if it is there."""
    with _refusals_named(uri), suppress(FileNotFoundError):
        filesystem, path = opened(uri)
        filesystem.delete_file(path)


def _stored(info: fs.FileInfo, name: str) -> StoredFile:
    return StoredFile(name=name, num_bytes=info.size or 0, changed_ns=info.mtime_ns or 0)


@contextmanager
def _sink(filesystem: fs.FileSystem, path: str) -> Iterator[Any]:  # Any: PyArrow has no types
    """Yield a stream; the file appears under its name when the block succeeds, and not before."""
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
        # Closing a stream publishes what it holds as an object, also after an error.
        with suppress(OSError):
            stream.close()
        with suppress(OSError):
            filesystem.delete_file(aside)
        raise
    if aside != path:
        filesystem.move(aside, path)


@contextmanager
def _refusals_named(uri: str) -> Iterator[None]:
    """Turn what a store raises in the block into a ``StorageError`` with a remedy."""
    try:
        yield
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise refusal(uri, error) from error
