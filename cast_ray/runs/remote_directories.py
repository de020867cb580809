"""Directories at a URI that are complete or absent, and this host's copies of them.

An object store has no rename: a directory is complete once its marker is there, which names all
files and is written last. A model or checkpoint at a URI is copied to this host's cache once,
under a lock, however many processes ask for it. What takes a ``PathOrUri`` also serves local
directories.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from cast_ray.errors import ModelError, RunDirectoryError, StorageError
from cast_ray.files import refusals_named
from cast_ray.numba_cache import user_cache
from cast_ray.runs.directories import (
    MARKER,
    MarkedFile,
    check_whole,
    described_files,
    marked_files,
    marker_text,
)
from cast_ray.runs.hub import download
from cast_ray.runs.model_files import model_fault
from cast_ray.runs.object_store import (
    StoredFile,
    delete_file,
    download_file,
    find_file,
    list_files,
    read_bytes,
    upload_file,
    write_bytes,
)
from cast_ray.runs.uris import PathOrUri, Uri, path_or_uri

T = TypeVar("T")
logger = logging.getLogger(__name__)

_FILES_AT_ONCE = 4
_PATIENCE_S = 120.0
_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 15.0


def cache_root() -> Path:
    """Return where this host keeps copies of what lies at URIs; it may be emptied between runs."""
    return Path(os.environ.get("CAST_RAY_CACHE") or user_cache() / "cast_ray").absolute()


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yield a new folder of this host, which is deleted at the end of the block."""
    parent = cache_root() / "scratch"
    with refusals_named(parent):
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def local_name(uri: Uri) -> str:
    """Return a readable folder name that is unique to a URI."""
    return f"{uri.name}-{hashlib.sha256(uri.encode()).hexdigest()[:12]}"


def with_retries(
    work: Callable[[], T],
    *,
    patience_s: float = _PATIENCE_S,
    rest: Callable[[float], None] = time.sleep,
) -> T:
    """Return what ``work`` returns, retried with growing delays while a store is unreachable.

    Args:
        work: raises StorageError while it is.
        patience_s: how long to retry.
        rest: waits for the given seconds between two attempts.

    Raises:
        StorageError: the last one, after ``patience_s``.
    """
    deadline, delay = time.monotonic() + patience_s, _FIRST_DELAY_S
    while True:
        try:
            return work()
        except StorageError as error:
            if time.monotonic() + delay > deadline:
                raise
            logger.warning("%s; trying again in %.1f s", error, delay)
        rest(delay)
        delay = min(2 * delay, _MAX_DELAY_S)


def upload_directory(directory: Path, uri: Uri) -> None:
    """Copy a local directory to a URI; it counts as complete when this returns, and not before.

    Raises:
        StorageError: the store failed for ``_PATIENCE_S``; what is at the URI has no marker.
    """
    withdraw(uri)
    write_marker(uri, upload_share(directory, uri))


@contextmanager
def written_at(location: PathOrUri) -> Iterator[Path]:
    """Yield where to write a directory so that it is at ``location`` after the block.

    The block writes it by ``cast_ray.runs.directories.publish``.
    """
    if isinstance(location, Path):
        yield location
        return
    with scratch_directory() as folder:
        yield folder / "directory"
        upload_directory(folder / "directory", location)


def withdraw(uri: Uri) -> None:
    """Delete the marker of a directory, if there is one: readers now count it as absent."""
    with_retries(lambda: delete_file(uri / MARKER))


def upload_share(directory: Path, uri: Uri) -> dict[str, MarkedFile]:
    """Copy one process's files of a directory to a URI; return them as the marker lists them."""
    described = described_files(directory)
    _in_parallel(
        lambda name: with_retries(lambda: upload_file(directory / name, uri / name)), described
    )
    return described


def write_marker(uri: Uri, files: dict[str, MarkedFile]) -> None:
    """Declare a directory complete: all of these files are there."""
    content = marker_text(dict(sorted(files.items()))).encode()
    with_retries(lambda: write_bytes(uri / MARKER, content))


def delete_directory(location: PathOrUri) -> None:
    """Delete a directory if it is there; at a URI, its marker first."""
    if isinstance(location, Path):
        if location.exists():
            shutil.rmtree(location)
        return
    withdraw(location)
    _in_parallel(lambda file: delete_file(location / file.name), list_files(location))


def is_whole(location: PathOrUri) -> bool:
    """Return whether a directory is there: locally by its name, at a URI by its marker."""
    return location.is_dir() if isinstance(location, Path) else has_file(location, MARKER)


def has_file(location: PathOrUri, name: str) -> bool:
    """Return whether a directory has a file of that name, other than a hub model's weights."""
    if isinstance(location, Uri) and location.hub_model:
        location = localized(location, with_weights=False)
    if isinstance(location, Path):
        return (location / name).is_file()
    return find_file(location / name) is not None


def check_whole_at(uri: Uri) -> None:
    """Raise unless a directory has its marker and every file the size that it was written with.

    The bytes are checked when they are downloaded (``localized``).

    Raises:
        RunDirectoryError: it is missing or half-written, or a file is damaged.
    """
    found = {file.name: file.num_bytes for file in list_files(uri)}
    if MARKER not in found:
        raise RunDirectoryError(f"{uri} is not a complete checkpoint ({MARKER} is missing)")
    for name, size in _marked(uri).items():
        if found.get(name) != size:
            raise RunDirectoryError(
                f"{uri / name} should have {size} bytes but has {found.get(name)}"
            )


def localized(location: str | Path, *, with_weights: bool = True) -> Path:
    """Return the local copy of a file or directory, downloaded if it lies at a URI.

    Args:
        location: a URI or a hub's model, or a local path, which is returned as it is. Text that
            crossed a process boundary is welcome.
        with_weights: False skips safetensors files: a tokenizer needs none.

    Raises:
        StorageError: there is nothing, or the store cannot be reached.
        ModelError: the hub does not have the model, or not for this user.
        RunDirectoryError: a byte of it is not as it was written.
    """
    uri = path_or_uri(location)
    if isinstance(uri, Path):
        return uri
    if uri.hub_model:
        return download(*uri.hub_model, with_weights=with_weights)
    folder = cache_root() / "localized" / local_name(uri)
    if file := find_file(uri):
        copy = folder / _fingerprint([file])
        _download_once([file], uri.parent, copy)
        return copy / file.name
    files = _files_of(uri)
    copy = folder / _fingerprint(files)
    if not with_weights:
        copy = copy.with_name(f"{copy.name}-without-weights")
        # Without the marker too: it lists the weights.
        files = [f for f in files if not f.name.endswith(".safetensors") and f.name != MARKER]
    _download_once(files, uri, copy)
    return copy


def sound_model(
    location: str | Path, *, called: str = "", with_weights: bool = True, is_trained: bool = False
) -> Path:
    """Return the local copy of a model, as ``localized`` does, unless a fault of it is known.

    Args:
        location: as for ``localized``.
        called: what messages call it; empty = its local path.
        with_weights: False skips the weights of one that is not here.
        is_trained: whether a learner loads it.

    Raises:
        ModelError: a file, which is named, is missing, damaged or not fit for a learner.
        StorageError, RunDirectoryError: as for ``localized``.
    """
    copy = localized(location, with_weights=with_weights)
    has_weights = with_weights or isinstance(path_or_uri(location), Path)
    if fault := model_fault(copy, with_weights=has_weights, is_trained=is_trained):
        raise ModelError(f"{called or copy} {fault}: replace it, or give another model")
    if with_weights and (copy / MARKER).is_file():
        try:
            check_whole(copy)
        except RunDirectoryError as error:
            raise ModelError(
                f"{called or copy} has changed since it was written ({error}); if you changed it "
                f"on purpose, delete its {MARKER}"
            ) from None
    return copy


def forget(copy: Path) -> None:
    """Delete a copy that ``localized`` made and that is not needed again."""
    shutil.rmtree(copy, ignore_errors=True)


def _files_of(uri: Uri) -> list[StoredFile]:
    """Return the files of a directory: those that its marker names, or all without a marker."""
    files = list_files(uri)
    if not files:
        raise StorageError(f"{uri} holds nothing: check the path")
    if any(file.name == MARKER for file in files):
        named = {MARKER, *_marked(uri)}
        files = [file for file in files if file.name in named]
    return files


def _marked(uri: Uri) -> dict[str, int]:
    """Return the sizes that a directory's marker names."""
    files = marked_files(read_bytes(uri / MARKER), uri / MARKER)
    return {name: file["num_bytes"] for name, file in files.items()}


def _download_once(files: list[StoredFile], uri: Uri, directory: Path) -> None:
    """Download files unless another process of this host has, or is doing so now."""
    with refusals_named(directory.parent):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(directory.parent / ".lock"):
            # Sizes too: a power loss may leave a directory's name with files cut short.
            sizes = {directory / file.name: file.num_bytes for file in files}
            if not all(path.is_file() and path.stat().st_size == sizes[path] for path in sizes):
                _download(files, uri, directory)


def _download(files: list[StoredFile], uri: Uri, directory: Path) -> None:
    """Copy files below a URI to a directory, which appears when all are there and checked."""
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    with refusals_named(directory):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        download_files(files, uri, partial)
        if (partial / MARKER).is_file():
            check_whole(partial)
        with refusals_named(directory):
            shutil.rmtree(directory, ignore_errors=True)
            partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def download_files(files: Iterable[StoredFile], uri: Uri, directory: Path) -> None:
    """Copy files below a URI into a directory, several at a time."""
    _in_parallel(
        lambda file: with_retries(lambda: download_file(uri / file.name, directory / file.name)),
        files,
    )


def _fingerprint(files: list[StoredFile]) -> str:
    described = json.dumps([[file.name, file.num_bytes, file.changed_ns] for file in files])
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _in_parallel(work: Callable[[T], object], items: Iterable[T]) -> None:
    with ThreadPoolExecutor(max_workers=_FILES_AT_ONCE) as pool:
        list(pool.map(work, items))
