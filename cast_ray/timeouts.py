"""A time-out for calls that have none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def answer_within(limit_s: float, call: Callable[[], T], *, name: str) -> T:
    """Return what a call returns, or raise what it raises, if it ends in time.

    Args:
        limit_s: seconds to wait.
        call: runs on a separate thread.
        name: of that thread.

    Raises:
        TimeoutError: it did not end in time; the thread is abandoned and ends with this process.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised below
            answer.set_exception(error)

    threading.Thread(target=ask, name=name, daemon=True).start()
    return answer.result(timeout=limit_s)
