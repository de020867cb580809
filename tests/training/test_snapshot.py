"""What the engines did between looks, with an engine that is replaced on the way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cast_ray.training.snapshot import Look, engine_figures, largest_mib
from serve.messages import EngineStats

FRESH = EngineStats(
    engine_id="first",
    replica_pid=1,
    core_pids=(2,),
    weight_version=1,
    seconds_running=0.0,
    num_requests=0,
    num_generated_tokens=0,
    num_refused=0,
    seconds_queued=0.0,
    prefix_query_tokens=0,
    prefix_hit_tokens=0,
    num_running=0,
    num_waiting=0,
    kv_usage=0.0,
    seconds_since_progress=0.0,
    replica_bytes=0,
    core_bytes=0,
)


def look(at: float, *engines: EngineStats | None, **memory: float) -> Look:
    return Look(at=at, engines=engines, pool={}, lost_groups=0, memory_bytes=memory)


def stats(name: str, seconds: float, requests: int = 0, waiting: int = 0) -> EngineStats:
    return replace(
        FRESH,
        engine_id=name,
        seconds_running=seconds,
        num_requests=requests,
        seconds_queued=0.5 * requests,
        prefix_query_tokens=100 * requests,
        prefix_hit_tokens=75 * requests,
        num_waiting=waiting,
    )


def test_totals_are_differences_and_shares_are_of_the_time_between() -> None:
    figures = engine_figures([look(100, stats("a", 7.0, 10)), look(110, stats("a", 9.5, 14))])
    assert figures.seconds_generation == pytest.approx(2.5)
    assert figures.engine_busy_fractions == pytest.approx((0.25,))
    assert figures.seconds_queueing == pytest.approx(0.5)
    assert figures.prefix_hit_fraction == pytest.approx(0.75)


def test_replaced_engine_keeps_what_it_said_before_its_end() -> None:
    looks = [
        look(0, stats("a", 50.0, 10)),
        look(2, stats("a", 51.5, 12)),
        look(4, None),
        look(30, stats("b", 0.5, 1)),
        look(32, stats("b", 2.0, 3)),
    ]
    figures = engine_figures(looks)
    assert figures.seconds_generation == pytest.approx(1.5 + 0.5 + 1.5)
    assert figures.engine_busy_fractions == pytest.approx((3.5 / 32,))


def test_engine_that_missed_a_look_is_not_counted_twice() -> None:
    looks = [look(0, stats("a", 50.0)), look(2, None), look(4, stats("a", 53.0))]
    assert engine_figures(looks).seconds_generation == pytest.approx(3.0)


def test_engine_that_was_away_at_first_counts_from_its_first_answer() -> None:
    looks = [look(0, None), look(2, stats("a", 50.0)), look(4, stats("a", 51.0))]
    assert engine_figures(looks).seconds_generation == pytest.approx(1.0)


def test_engine_that_was_never_there_is_unknown_and_not_idle() -> None:
    figures = engine_figures([look(0, None, stats("b", 1.0)), look(2, None, stats("b", 2.0))])
    assert math.isnan(figures.engine_busy_fractions[0])
    assert figures.engine_busy_fractions[1] == pytest.approx(0.5)
    assert figures.seconds_generation == pytest.approx(1.0)


def test_nothing_asked_is_not_measured() -> None:
    figures = engine_figures([look(0, stats("a", 1.0)), look(2, stats("a", 1.0))])
    assert math.isnan(figures.seconds_queueing)
    assert math.isnan(figures.prefix_hit_fraction)


def test_queues_and_memory_are_those_of_the_looks() -> None:
    looks = [
        look(0, stats("a", 0, waiting=3), stats("b", 0, waiting=1)),
        look(2, None, stats("b", 0, waiting=5)),
    ]
    figures = engine_figures(looks)
    assert (figures.engine_queue_mean, figures.engine_queue_max) == (3.0, 5.0)
    unseen = engine_figures([look(0, None)])
    assert math.isnan(unseen.engine_queue_mean)
    assert math.isnan(unseen.engine_queue_max)
    last = look(2, **{"oracle-0": 2.0**20, "oracle-1": 2.0**21})
    assert largest_mib(last, "oracle") == 2
    assert math.isnan(largest_mib(last, "engine"))
