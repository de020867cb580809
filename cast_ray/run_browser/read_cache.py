"""What was read from files, kept until they change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadCache(Generic[T]):
    """The results of one reader, the least recently used dropped first. Safe for threads."""

    def __init__(self, read: Callable[[Path], T], *, max_entries: int) -> None:
        """Start empty.

        Args:
            read: from a file to a value that nobody changes.
            max_entries: most values that are kept.
        """
        self._read, self._max_entries = read, max_entries
        self._kept: OrderedDict[Path, tuple[tuple[int, ...], T]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_reads = 0

    def get(self, path: Path) -> T:
        """Return what the file says, read anew if its time, size or inode is another.

        Raises:
            OSError: there is no such file.
        """
        stat = path.stat()  # before reading: a file that changes meanwhile is read again
        version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self._lock:
            kept = self._kept.get(path)
            if kept is not None and kept[0] == version:
                self._kept.move_to_end(path)
                return kept[1]
        value = self._read(path)
        with self._lock:
            self.num_reads += 1
            self._kept[path] = (version, value)
            self._kept.move_to_end(path)
            while len(self._kept) > self._max_entries:
                self._kept.popitem(last=False)
        return value
