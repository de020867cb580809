"""Files that are complete or absent, locks that end with their process, and one-sentence errors."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cast_ray.errors import EnvironmentSetupError, RunDirectoryError

MAX_JSON_BYTES = 64 * 2**20


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; it is renamed to ``path`` if the block succeeds.

    A reader sees the old file or the complete new one, also after a power loss; after an error the
    old one is still there. The folder is made.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            fsync(aside)
            os.replace(aside, path)
            fsync(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file as ``written_aside`` does.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def is_below(name: str) -> bool:
    """Return whether a relative name with slashes leads nowhere but below the folder it is for."""
    parts = name.split("/")
    return not {"", ".", ".."} & {*parts} and "\0" not in name and "\\" not in name


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; all of it is on disk when this returns, or none of it.

    What a killed process left of a last line is cut off first.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    data = f"{line}\n".encode()
    with refusals_named(path), open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            end = path.read_bytes().rfind(b"\n") + 1
            file.truncate(end)
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def read_json(path: Path) -> Any:  # Any: what the file says
    """Return the content of a JSON file, of any that the caller does not trust.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, too large, or nested too deeply.
    """
    if (size := path.stat().st_size) > MAX_JSON_BYTES:
        raise ValueError(f"it has {size} bytes, more than {MAX_JSON_BYTES}")
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Exclude others, in this process too, during the block; also ends with the process.

    Args:
        path: the lock file; its folder is made.
        refusal: the message if another holds the lock.

    Raises:
        RunDirectoryError: another holds it.
        EnvironmentSetupError: the file system refused something.
    """
    lock = FileLock(path, timeout=0, thread_local=False)
    with refusals_named(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise RunDirectoryError(refusal) from None
    try:
        yield
    finally:
        lock.release()


def fsync(path: Path) -> None:
    """Return when a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def refusals_named(path: Path) -> Iterator[Path]:
    """Yield ``path``; turn an ``OSError`` of the block into an error that names it.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    try:
        yield path
    except OSError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be written ({error.strerror or error}): free some space or choose "
            "another location"
        ) from None
