"""The check of a refusal: the exception's type and the facts in its message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(error: type[Exception], *facts: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error that tells the facts; the sentence around them is free.

    Args:
        error: The type that must be raised.
        *facts: What the message must contain, each as written: the key, the value, the path,
            the number, the remedy's command or option. At least one.

    Yields:
        What ``pytest.raises`` yields.
    """
    assert facts and all(facts), "name at least one fact; an empty one is in every message"
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    missing = [fact for fact in facts if fact not in message]
    assert not missing, f"{missing} not in {message!r}"
