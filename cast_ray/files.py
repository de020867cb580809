"""What is written to disk: files that are whole or absent, and refusals in one sentence."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cast_ray.errors import EnvironmentSetupError, RunDirectoryError


@contextmanager
def written_aside(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a place beside ``path`` to write to; it takes that name if the block succeeds.

    A reader meets the old file or the whole new one; after an error the old one is still there.

    Args:
        path: the file's own name.
        durable: the file is on disk before it has its name: it outlives the machine's fall.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with refusals_named(path):
        try:
            yield aside
            if durable:
                fsync(aside)
            os.replace(aside, path)
            if durable:
                fsync(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def lock_directory(directory: Path, refusal: str) -> TextIO:
    """Return what keeps other processes out of a directory while it lives, at most as long as this
    process, however it ends.

    Args:
        directory: that exists.
        refusal: one sentence for whoever comes second.

    Raises:
        RunDirectoryError: another process has it.
        EnvironmentSetupError: the file system refused something.
    """
    with refusals_named(directory):
        lock = open(directory / ".lock", "w")  # noqa: SIM115  handed out
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise RunDirectoryError(refusal) from None
    return lock


def fsync(path: Path) -> None:
    """Return when a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def refusals_named(path: Path) -> Iterator[Path]:
    """Yield ``path``; say in one sentence that it cannot be written, if the block finds so.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    try:
        yield path
    except OSError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be written ({error.strerror or error}): free some space or give "
            "another place"
        ) from None
