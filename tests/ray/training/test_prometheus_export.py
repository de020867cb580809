"""What a run exports arrives at the port that Prometheus asks, without Ray's dashboard."""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields

import pytest
import ray

from cast_ray.cluster.session import start_ray
from cast_ray.training import prometheus as table
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.snapshot import Look
from serve.messages import EngineStats
from tests.support.made_up_run import step_row
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
_LINE = re.compile(r"^(ray_cast_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_OURS = {"run", *(tag for metric in table.ALL for tag in metric.tags)}
_WAIT_S = 120.0
_REPORT_S = 1
"""Between two reports of Ray's; what it has not heard of for two of them it forgets."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a Ray that hands on its figures every second, as a local run starts it otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_metrics_report_interval_ms", str(1000 * _REPORT_S))
        start_ray(num_cpus=1, object_store_bytes=100 * 2**20)
        (node,) = ray.nodes()
        yield f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        ray.shutdown()


def served(address: str, run: str) -> Series:
    """Return what is served of a run: by name and our tags."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    found: Series = {}
    for name, labels, value in _LINE.findall(text):
        tags = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if tags["run"] == run:
            ours = frozenset((k, v) for k, v in tags.items() if k in _OURS - {"run"})
            found[name, ours] = float(value)
    return found


def wait_for(
    address: str,
    run: str,
    is_there: Callable[[Series], bool],
    look_again: Callable[[], None],
) -> Series:
    """Return what is served once it is as expected; Ray's agent gives no event to wait for."""
    found: Series = {}

    def is_served() -> bool:
        nonlocal found
        look_again()
        try:
            found = served(address, run)
        except OSError:
            found = {}
        return is_there(found)

    try:
        wait_until(is_served, timeout_s=_WAIT_S, what="the figures of the run")
    except TimeoutError as error:
        raise AssertionError(f"{error}, but: {found}") from None
    return found


def key(name: str, **tags: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"ray_{name}", frozenset(tags.items())


def engine(engine_id: str, **figures: float) -> EngineStats:
    values = {item.name: 0 for item in fields(EngineStats)}
    return EngineStats(**values | {"engine_id": engine_id, "core_pids": ()} | figures)  # type: ignore[arg-type]


def look(*engines: EngineStats | None, **memory: float) -> Look:
    return Look(at=0.0, engines=engines, pool={}, lost_groups=0, memory_bytes=memory)


def test_exporting_where_no_ray_runs_is_no_error() -> None:
    assert not ray.is_initialized()
    exporter = MetricsExporter("alone")
    exporter.step(step_row(1, engine_busy_fractions=(math.nan,)))
    exporter.look(look(None))
    exporter.recoveries(Counter({"node": 1}))


def test_every_metric_of_a_run_is_served_with_its_value_and_tags(address: str) -> None:
    exporter = MetricsExporter("whole")
    row = step_row(
        4,
        success=0.625,
        validation_success=0.5,
        staleness_tokens=(90, 10),
        engine_busy_fractions=(0.75, 0.5),
        is_replayed=True,
    )
    one = engine("a", num_running=7, num_waiting=3, kv_usage=0.25)
    exporter.step(row)
    exporter.recoveries(Counter({"engine": 2, "driver": 1}))
    names = {metric.prometheus_name for metric in table.ALL}
    found = wait_for(
        address,
        "whole",
        lambda series: {name for name, _ in series} >= names,
        lambda: exporter.look(look(one, None, driver=2.0**20)),
    )

    assert {name for name, _ in found} == names
    assert found[key("cast_step")] == 4
    assert found[key("cast_step_success")] == 0.625
    assert found[key("cast_step_is_replayed")] == 1
    assert found[key("cast_step_staleness_tokens", staleness="1")] == 10
    assert found[key("cast_step_engine_busy_fractions", engine="0")] == 0.75
    assert found[key("cast_engine_running_requests", engine="0")] == 7
    assert found[key("cast_engine_waiting_requests", engine="0")] == 3
    assert found[key("cast_engine_kv_usage", engine="0")] == 0.25
    assert found[key("cast_engine_up", engine="1")] == 0
    assert key("cast_engine_running_requests", engine="1") not in found
    assert found[key("cast_process_memory_bytes", process="driver")] == 2**20
    assert found[key("cast_recoveries_total", kind="engine")] == 2
    assert found[key("cast_recoveries_total", kind="driver")] == 1


def test_what_is_not_known_any_more_is_served_neither_as_zero_nor_as_it_was(address: str) -> None:
    exporter = MetricsExporter("gone")
    queue, kept = key("cast_step_engine_queue_mean"), key("cast_step_validation_success")
    up, running = (key(f"cast_engine_{name}", engine="0") for name in ("up", "running_requests"))
    memory = key("cast_process_memory_bytes", process="oracle")
    exporter.step(step_row(1, engine_queue_mean=3.5, validation_success=0.25))
    wait_for(
        address,
        "gone",
        lambda series: {queue, kept, running, memory} <= series.keys(),
        lambda: exporter.look(look(engine("a", num_running=7), driver=1.0, oracle=1.0)),
    )
    exporter.step(step_row(2, engine_queue_mean=math.nan, validation_success=None))
    # All at once: on a busy machine Ray's agent leaves out even living figures for a moment.
    found = wait_for(
        address,
        "gone",
        lambda series: (
            series.get(key("cast_step")) == 2
            and {kept, up} <= series.keys()
            and not {queue, running, memory} & series.keys()
        ),
        lambda: exporter.look(look(None, driver=1.0)),
    )
    assert found[kept] == 0.25
    assert found[up] == 0


def test_row_of_a_long_step_is_served_as_long_as_the_parts_are_looked_at(address: str) -> None:
    exporter = MetricsExporter("long")
    exporter.step(step_row(7, success=0.5))
    success, ended = key("cast_step_success"), time.monotonic() + 8 * _REPORT_S
    found = wait_for(
        address,
        "long",
        lambda series: time.monotonic() > ended and success in series,
        lambda: exporter.look(look()),
    )
    assert found[success] == 0.5


def test_recoveries_add_up_over_looks_and_are_counted_once(address: str) -> None:
    exporter = MetricsExporter("counted")
    for count in (1, 1, 3, 3):
        exporter.recoveries(Counter({"oracle": count}))
    recoveries = key("cast_recoveries_total", kind="oracle")
    found = wait_for(address, "counted", lambda series: recoveries in series, lambda: None)
    assert found[recoveries] == 3
