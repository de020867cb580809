"""The one way in which a test waits for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2


def wait_until(condition: Callable[[], Found], *, timeout_s: float, what: str) -> Found:
    """Return what a condition returns as soon as that is true.

    It is called often at first and less often later: a long wait costs a busy machine little.

    Args:
        condition: is called at least once; what it raises ends the wait.
        timeout_s: after so many seconds without a true value the wait is over.
        what: what is waited for, for the message.

    Raises:
        TimeoutError: the condition was not true in time; the message names ``what``.
    """
    started = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - started
        if waited_s > timeout_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(min(max(waited_s / 20, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))
    return found
