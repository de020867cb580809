"""The runs below one directory, by name and never outside of it; a cache of what was read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from cast_ray.errors import DamagedFileError, RunDirectoryError, RunUnknown
from cast_ray.runs.run_directory import RunDirectory

MAX_DEPTH = 4
"""Folders between the root and a run: a sweep's runs are two below it."""
MAX_FOLDERS = 10_000
"""Folders that one listing opens."""

_ITSELF = "."


class RunRoot:
    """One directory and the run directories in it; it may be one itself.

    A name is a path relative to the root with ``/`` between folders. Links are followed where they
    stay below the root; a listing follows none, so that it ends and names each run once.
    """

    def __init__(self, path: Path) -> None:
        """Open a root; one that does not exist yet has no runs."""
        self.path = _resolved(path)

    def names(self) -> list[str]:
        """Return the names of all runs; that of a root which is one itself is ``.``."""
        return sorted(self._below(self.path, depth=0, left=[MAX_FOLDERS]))

    def run(self, name: str) -> RunDirectory:
        """Return a run by its name.

        Raises:
            RunUnknown: there is none, or the name is outside of the root.
        """
        parts = PurePosixPath(name).parts
        # An absolute path's first part is "/" itself, so that its parts joined are another text.
        is_plain = name == _ITSELF or (
            bool(parts) and "\0" not in name and "/".join(parts) == name and ".." not in parts
        )
        if is_plain:
            try:
                path = _resolved(self.path / name)
                if self.holds(path) and self.holds(path / "config.yaml"):
                    return RunDirectory.existing(path)
            except (OSError, RunDirectoryError):  # too long a name; no run
                pass
        raise RunUnknown(f"there is no run {name[:200]!r} here: /api/runs lists them")

    def file(self, path: Path) -> Path:
        """Return the path of a file of a run, all links followed.

        Raises:
            RunDirectoryError: it is outside of the root.
        """
        if not self.holds(path):
            raise RunDirectoryError(
                f"{path.name} is a link out of the directory of the runs: put the file itself there"
            )
        return _resolved(path)

    def holds(self, path: Path) -> bool:
        """Return whether a path, all links followed, is the root or below it."""
        return _resolved(path).is_relative_to(self.path)

    def _below(self, folder: Path, *, depth: int, left: list[int]) -> Iterator[str]:
        """Yield the runs in a folder; runs hold no runs. ``left`` counts down the folders."""
        left[0] -= 1
        config = folder / "config.yaml"
        if os.path.isfile(config) and self.holds(config):
            yield folder.relative_to(self.path).as_posix()
            return
        if depth == MAX_DEPTH or left[0] < 0:
            return
        try:
            with os.scandir(folder) as entries:
                inside = [
                    entry.name
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and _is_listed(entry.name)
                ]
        except OSError:  # not readable, or just removed
            return
        for name in sorted(inside):
            yield from self._below(folder / name, depth=depth + 1, left=left)


def _resolved(path: Path) -> Path:
    """Return a path with all links followed, as far as they exist."""
    return Path(os.path.realpath(path))  # Path.resolve raises where links form a loop


def _is_listed(name: str) -> bool:
    """Return whether a folder is not hidden and has a printable name."""
    return not name.startswith(".") and name.isprintable()


T = TypeVar("T")


class ReadCache(Generic[T]):
    """The results of one reader; the least recently used is dropped first. Thread-safe."""

    def __init__(self, read: Callable[[Path], T], *, max_entries: int) -> None:
        """Start empty.

        Args:
            read: returns the value of a file, which is not changed afterwards.
            max_entries: most values to keep.
        """
        self._read = lru_cache(max_entries)(lambda path, *version: read(path))

    def get(self, path: Path) -> T:
        """Return the value of a file, read again if its time, size or inode has changed.

        Raises:
            OSError: there is no such file.
            RunDirectoryError: it is damaged.
        """
        stat = path.stat()  # before reading: a file that changes meanwhile is read again
        with damage_named(path):
            return self._read(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Name a damaged file without its folders, which are not for everyone.

    Raises:
        OSError: it was removed meanwhile.
        RunDirectoryError: it is damaged.
    """
    try:
        yield
    except DamagedFileError as error:
        path.stat()
        raise RunDirectoryError(str(error).replace(str(path), path.name)) from None
