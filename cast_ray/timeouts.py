"""An answer within a time from a call that knows no limit of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def answer_within(limit_s: float, question: Callable[[], T], *, name: str) -> T:
    """Return the answer to a question that may never come, or raise what it raises.

    Args:
        limit_s: seconds to wait.
        question: asked on a thread of its own.
        name: of that thread.

    Raises:
        TimeoutError: no answer came; the thread is left behind and ends with this process.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # whatever it is, it is raised where the answer is awaited
            answer.set_exception(error)

    threading.Thread(target=ask, name=name, daemon=True).start()
    return answer.result(timeout=limit_s)
