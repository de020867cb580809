"""An engine and a learner on one GPU: who has it when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from cast_ray.config.load import load_config
from cast_ray.learner.group import LearnerGroup
from cast_ray.training.session import TrainingSession
from cast_ray.training.workers import Workers


class NotedEngines:
    """A double of a run's engines that notes what it is told."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def rest(self, *, timeout_s: float) -> None:
        self._events.append("engines sleep")

    def wake(self, *, timeout_s: float) -> None:
        self._events.append("engines wake")


def session_of(events: list[str], *overrides: str) -> tuple[TrainingSession, Workers]:
    """Return a session and workers of which only the turns on the GPU are real."""
    session = TrainingSession.__new__(TrainingSession)
    config = load_config(None, list(overrides))
    run: Any = SimpleNamespace(config=config, progress=SimpleNamespace(phase=lambda text: None))
    session.run = run

    def call(method: Callable[[Any], Any]) -> None:
        assert method is LearnerGroup.release_memory
        events.append("learner releases memory")

    learner: Any = SimpleNamespace(call=call)
    session.learner = learner
    workers = Workers.__new__(Workers)
    engines: Any = NotedEngines(events)
    workers.engines = engines
    workers._rest_timeout_s = config.engine.update_timeout_s if config.resources.share_gpu else 0
    return session, workers


def test_engines_start_first_and_sleep_until_the_learner_is_there() -> None:
    events: list[str] = []
    session, workers = session_of(events, "resources.preset=one_gpu")
    starting: Future[Workers] = Future()

    @contextmanager
    def noted() -> Iterator[None]:
        with session._gpu_to_the_learner(starting):
            events.append("learner starts")
            yield

    starting.set_result(workers)
    with noted():
        pass
    assert events == [
        "engines sleep",
        "learner starts",
        "learner releases memory",
        "engines wake",
    ]


def test_nothing_waits_where_each_has_its_own() -> None:
    session, _ = session_of(events := [])
    with session._gpu_to_the_learner(Future()):  # never done
        events.append("learner starts")
    assert events == ["learner starts"]


def test_engines_wake_although_the_learner_failed() -> None:
    session, workers = session_of(events := [], "resources.preset=one_gpu")
    starting: Future[Workers] = Future()
    starting.set_result(workers)
    with pytest.raises(RuntimeError), session._gpu_to_the_learner(starting):
        raise RuntimeError("no learner")
    assert events == ["engines sleep", "engines wake"]
