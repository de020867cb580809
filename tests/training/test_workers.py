"""Engines that share the learner's GPU leave it for the updates, and take it back after them."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cast_ray.config.load import load_config
from cast_ray.errors import LearnerError
from cast_ray.training.session import TrainingSession
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
    release_memory = partial(noted.calls.append, "release memory")
    with workers.engines_at_rest(release_memory):
        noted.calls.append("learn")
    assert noted.calls == ["rest 7", "learn", "release memory", "wake 7"]
    with pytest.raises(LearnerError), workers.engines_at_rest(release_memory):
        raise LearnerError("a rank died")
    assert noted.calls[4:] == ["rest 7", "wake 7"]
    workers.collector.close()


def test_engines_with_a_gpu_of_their_own_go_on() -> None:
    noted = Noted()
    workers = workers_with(noted, 0)
    with workers.engines_at_rest(lambda: None):
        pass
    assert noted.calls == []
    workers.collector.close()


def starting_session(noted: Noted, *overrides: str) -> TrainingSession:
    """Return a session of which only the turns on the GPU are real."""
    session = TrainingSession.__new__(TrainingSession)
    progress = SimpleNamespace(phase=lambda text: None)
    session.run = SimpleNamespace(config=load_config(None, list(overrides)), progress=progress)  # type: ignore[assignment]
    session.learner = SimpleNamespace(call=lambda method: noted.calls.append(method.__name__))  # type: ignore[assignment]
    return session


def test_engines_on_a_shared_gpu_start_first_and_sleep_until_the_learner_is_there() -> None:
    noted = Noted()
    workers = workers_with(noted, 7)
    session = starting_session(noted, "resources.preset=one_gpu")
    starting: Future[Workers] = Future()
    threading.Timer(0.2, starting.set_result, [workers]).start()
    with session._gpu_to_the_learner(starting):
        noted.calls.append("learner starts")
    assert noted.calls == ["rest 7", "learner starts", "release_memory", "wake 7"]
    workers.collector.close()


def test_a_learner_with_a_gpu_of_its_own_waits_for_no_engine() -> None:
    session = starting_session(Noted())
    with session._gpu_to_the_learner(Future()):  # never done
        pass
