"""What processes write, read along so that a failure of theirs can be told in one sentence.

vLLM's core and its workers are processes of their own. When one fails, it writes a hundred lines to
its standard error and refers the caller to them, at the start as at any later request.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections import deque

from serve.engine.first_error import first_error

_KEPT_BYTES = 2**20
_LAST_WORDS_S = 0.3
"""For the end of what a process wrote, which may arrive after the news of its death."""
BEFORE_FAILURE_S = 30.0
"""Older errors are not the cause: vLLM also writes those that it survives."""


class Overheard:
    """Reads what this process writes in the block, and its children of the block until they end.

    The output still reaches its destination; its newest ``_KEPT_BYTES`` are kept.
    """

    def __init__(self) -> None:
        self._heard: deque[tuple[float, bytes]] = deque()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Overheard:
        source, sink = os.pipe()
        self._kept = [os.dup(1), os.dup(2)]
        arguments = (source, os.dup(2))
        self._thread = threading.Thread(target=self._read, args=arguments, daemon=True)
        self._thread.start()
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.close(sink)
        return self

    def __exit__(self, *_: object) -> None:
        for number, kept in enumerate(self._kept, start=1):
            os.dup2(kept, number)
            os.close(kept)

    def first_error(self, *, within_s: float = math.inf) -> str:
        """Return the first error of the last seconds, as one line; empty if there is none."""
        since = time.monotonic() - within_s
        self._thread.join(_LAST_WORDS_S)  # returns at once if no process can write any more
        with self._lock:
            text = b"".join(data for at, data in self._heard if at >= since)
        return first_error(text.decode(errors="replace"))

    @functools.cached_property
    def cause_of_death(self) -> str:
        """The first error shortly before the first question for it; ask when a process has died."""
        found = self.first_error(within_s=BEFORE_FAILURE_S)
        return found or "it wrote no error, as if it was killed; see the engine's log"

    def _read(self, source: int, destination: int) -> None:
        while data := os.read(source, 2**16):
            with self._lock:
                self._heard.append((time.monotonic(), data))
                self._num_bytes += len(data)
                while self._num_bytes > _KEPT_BYTES:
                    self._num_bytes -= len(self._heard.popleft()[1])
            os.write(destination, data)
        os.close(source)
        os.close(destination)
