"""Engines that share the learner's GPU leave it for the updates, and take it back after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cast_ray.errors import LearnerError
from cast_ray.training.workers import Workers


class Noted:
    """Engines and a pool that write down what is asked of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def rest(self, *, timeout_s: float) -> None:
        self.calls.append(f"rest {timeout_s:g}")

    def wake(self, *, timeout_s: float) -> None:
        self.calls.append(f"wake {timeout_s:g}")

    def collect(self, *, timeout_s: float) -> list[Any]:
        return []


def workers_with(noted: Noted, rest_timeout_s: float) -> Workers:
    return Workers(
        engines=noted,  # type: ignore[arg-type]  # a double
        pool=noted,  # type: ignore[arg-type]  # a double
        tokenizer=None,  # type: ignore[arg-type]  # not looked at
        weights_dir=Path("nowhere"),
        dtype="bfloat16",
        rest_timeout_s=rest_timeout_s,
    )


def test_engines_rest_while_the_learner_works_and_wake_also_when_it_fails() -> None:
    noted = Noted()
    workers = workers_with(noted, 7)
    with workers.engines_at_rest():
        noted.calls.append("learn")
    assert noted.calls == ["rest 7", "learn", "wake 7"]
    with pytest.raises(LearnerError), workers.engines_at_rest():
        raise LearnerError("a rank died")
    assert noted.calls[3:] == ["rest 7", "wake 7"]
    workers.collector.close()


def test_engines_with_a_gpu_of_their_own_go_on() -> None:
    noted = Noted()
    workers = workers_with(noted, 0)
    with workers.engines_at_rest():
        pass
    assert noted.calls == []
    workers.collector.close()
