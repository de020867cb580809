"""Directories at a URI that are whole or absent, and this host's copies of them.

An object store has no rename: a directory is whole once its marker is there, which is written last
and names all files. A model or checkpoint at a URI is brought to this host's cache once, under a
lock, however many processes ask for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

from cast_ray.errors import RunDirectoryError, StorageError
from cast_ray.files import refusals_named
from cast_ray.numba_cache import user_cache
from cast_ray.runs.directories import MARKER, check_whole, described_files, marker_text
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
from cast_ray.runs.uris import child_uri, is_uri, name_of, parent_uri

PathOrUri: TypeAlias = Path | str
"""A local path, or a URI as text."""
T = TypeVar("T")

_FILES_AT_ONCE = 4
_PATIENCE_S = 120.0
_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 15.0


def cache_root() -> Path:
    """Return where this host keeps copies of what lies at URIs; it may be emptied between runs."""
    return Path(os.environ.get("CAST_RAY_CACHE") or user_cache() / "cast_ray")


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yield a new folder of this host; it goes with the block."""
    place = cache_root() / "scratch"
    with refusals_named(place):
        place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


def local_name(uri: str) -> str:
    """Return a folder's name for what lies at a URI: readable, and of this URI alone."""
    return f"{name_of(uri)}-{hashlib.sha256(uri.encode()).hexdigest()[:12]}"


def as_path_or_uri(place: PathOrUri) -> PathOrUri:
    """Return a URI as it is, and a local path as an absolute one."""
    return str(place) if is_uri(place) else Path(place).absolute()


def below(place: PathOrUri, *names: str) -> PathOrUri:
    """Return what lies below a place."""
    return child_uri(str(place), *names) if is_uri(place) else Path(place, *names)


def with_retries(work: Callable[[], T], *, patience_s: float = _PATIENCE_S) -> T:
    """Return what ``work`` returns, tried again with growing delays while a store is away.

    Raises:
        StorageError: the last one, after ``patience_s``.
    """
    deadline, delay = time.monotonic() + patience_s, _FIRST_DELAY_S
    while True:
        try:
            return work()
        except StorageError:
            if time.monotonic() + delay > deadline:
                raise
        time.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY_S)


def upload_directory(directory: Path, uri: str) -> None:
    """Copy a local directory to a URI; it is there when this returns, and not before.

    Raises:
        StorageError: the store failed for ``_PATIENCE_S``; what is at the URI has no marker.
    """
    withdraw(uri)
    write_marker(uri, upload_share(directory, uri))


@contextmanager
def written_at(place: PathOrUri) -> Iterator[Path]:
    """Yield where a directory is to be written so that it is at ``place`` after the block.

    The block writes it as ``cast_ray.runs.directories.publish`` does.
    """
    if not is_uri(place):
        yield Path(place)
        return
    with scratch_directory() as folder:
        yield folder / "directory"
        upload_directory(folder / "directory", str(place))


def withdraw(uri: str) -> None:
    """Take the marker of a directory away, if there is one: from now on nobody reads it."""
    with_retries(lambda: delete_file(child_uri(uri, MARKER)))


def upload_share(directory: Path, uri: str) -> dict[str, dict[str, int]]:
    """Copy one process's files of a directory to a URI; return them as its marker has them."""
    described = described_files(directory)
    _side_by_side(
        lambda name: with_retries(lambda: upload_file(directory / name, child_uri(uri, name))),
        described,
    )
    return described


def write_marker(uri: str, files: dict[str, dict[str, int]]) -> None:
    """Declare a directory whole: all of these files are there."""
    content = marker_text(dict(sorted(files.items()))).encode()
    with_retries(lambda: write_bytes(child_uri(uri, MARKER), content))


def delete_directory(uri: str) -> None:
    """Delete a directory, its marker first."""
    withdraw(uri)
    _side_by_side(lambda file: delete_file(child_uri(uri, file.name)), list_files(uri))


def is_whole(place: PathOrUri) -> bool:
    """Return whether a directory is there: locally by its name, at a URI by its marker."""
    return has_file(place, MARKER) if is_uri(place) else Path(place).is_dir()


def has_file(place: PathOrUri, name: str) -> bool:
    """Return whether a directory has a file of a name."""
    if is_uri(place):
        return find_file(child_uri(str(place), name)) is not None
    return (Path(place) / name).is_file()


def check_whole_at(uri: str) -> None:
    """Raise unless a directory has its marker and every file the size that it was written with.

    The bytes themselves are looked at where they arrive (``localized``).

    Raises:
        RunDirectoryError: it is missing or half-written, or a file is damaged.
    """
    found = {file.name: file.num_bytes for file in list_files(uri)}
    if MARKER not in found:
        raise RunDirectoryError(f"{uri} is no complete checkpoint ({MARKER} is missing)")
    for name, size in _marked(uri).items():
        if found.get(name) != size:
            raise RunDirectoryError(
                f"{child_uri(uri, name)} should have {size} bytes but has {found.get(name)}"
            )


def localized(place: PathOrUri, *, with_weights: bool = True) -> Path:
    """Return the local copy of a file or directory, brought from its URI if it has to be.

    Args:
        place: a URI, or a local path, which is returned as it is.
        with_weights: False leaves safetensors files where they are: a tokenizer needs none.

    Raises:
        StorageError: there is nothing, or the store cannot be reached.
        RunDirectoryError: a byte of it is not as it was written.
    """
    if not is_uri(place):
        return Path(place)
    uri = str(place)
    folder = cache_root() / "localized" / local_name(uri)
    if file := find_file(uri):
        copy = folder / _fingerprint([file])
        _bring_once([file], parent_uri(uri), copy)
        return copy / file.name
    files = _files_of(uri)
    copy = folder / _fingerprint(files)
    if not with_weights:
        copy = copy.with_name(f"{copy.name}-without-weights")
        # The marker too: it would miss them.
        files = [f for f in files if not f.name.endswith(".safetensors") and f.name != MARKER]
    _bring_once(files, uri, copy)
    return copy


def forget(copy: Path) -> None:
    """Delete a copy that ``localized`` made and nobody will ask for again."""
    shutil.rmtree(copy, ignore_errors=True)


def download_directory(uri: str, directory: Path) -> None:
    """Copy a directory at a URI to a local one, which is whole or absent.

    Raises:
        StorageError, RunDirectoryError: as in ``localized``.
    """
    _bring(_files_of(uri), uri, directory)


def _files_of(uri: str) -> list[StoredFile]:
    """Return the files of a directory: those that its marker names, all where it has none."""
    files = list_files(uri)
    if not files:
        raise StorageError(f"{uri} holds nothing: check the path")
    if any(file.name == MARKER for file in files):
        named = {MARKER, *_marked(uri)}
        files = [file for file in files if file.name in named]
    return files


def _marked(uri: str) -> dict[str, int]:
    """Return the sizes that a directory's marker names."""
    marker = child_uri(uri, MARKER)
    try:
        files = json.loads(read_bytes(marker))["files"]
        return {name: int(file["num_bytes"]) for name, file in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise RunDirectoryError(f"{marker} is damaged: use an older checkpoint") from None


def _bring_once(files: list[StoredFile], uri: str, directory: Path) -> None:
    with _locked(directory.parent):
        if not _is_copy(directory, files):
            _bring(files, uri, directory)


def _bring(files: list[StoredFile], uri: str, directory: Path) -> None:
    """Copy files below a URI to a directory, which appears when all are there and proved."""
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


def download_files(files: Iterable[StoredFile], uri: str, directory: Path) -> None:
    """Copy files below a URI into a directory, some at a time."""
    _side_by_side(
        lambda file: with_retries(
            lambda: download_file(child_uri(uri, file.name), directory / file.name)
        ),
        files,
    )


def _is_copy(directory: Path, files: list[StoredFile]) -> bool:
    """Return whether a directory has these files in their sizes, also after a machine's fall."""
    places = {directory / file.name: file.num_bytes for file in files}
    return all(path.is_file() and path.stat().st_size == size for path, size in places.items())


def _fingerprint(files: list[StoredFile]) -> str:
    described = json.dumps([[file.name, file.num_bytes, file.changed_ns] for file in files])
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _side_by_side(work: Callable[[T], object], items: Iterable[T]) -> None:
    with ThreadPoolExecutor(max_workers=_FILES_AT_ONCE) as pool:
        list(pool.map(work, items))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep this host's other processes from a folder; they wait."""
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115  closed below
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
