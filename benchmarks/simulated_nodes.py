"""A Ray test cluster of simulated nodes under full load: its speed and what its processes use.

Every node has its own raylet, agents and object store, all on this machine; the head runs no actor.
What the parts reserve places one simulated engine, one env runner and one oracle actor on each
node.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

from benchmarks.simulated import (
    DRIVER,
    GroupStream,
    cpu_seconds,
    private_mib,
    processes_by_component,
)
from cast_ray.config.load import load_config
from cast_ray.errors import RemoteTimeout
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.timeouts import use_start_limits
from cast_ray.training.workers import start_pool
from serve.client.engines import PolicyEngines
from solver_actors.actors.pool import RolloutPool
from tests.support.simulated_engine import SlotClock, deploy_simulated_engines

GAME, TIER = "sokoban", "id"
SLOTS_PER_NODE = 5
SECONDS_PER_TURN = 0.2
GROUPS_PER_NODE = 8
"""64 episodes for 5 slots: an engine always has requests."""
_CPUS_PER_NODE = 2
_CPUS_PER_ENGINE = 1.25  # two do not fit on one node
_CPUS_PER_ENVIRONMENT = 0.5
_CPUS_PER_ORACLE = 0.25
_STORE_BYTES = 2**27
_LOOK_EVERY_S = 2.0
"""Interval of status calls, as in a run's monitor."""
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWindow:
    """The measurements of one window."""

    num_nodes: int
    seconds: float
    num_turns: int
    """Turns as the engines count them."""
    num_calls: int
    """Calls from env runners to engines."""
    empty_fraction: float
    """Share of all engines' slot-seconds without a turn."""
    cpu_s: dict[str, float]
    """By kind of process; ``collector`` is a thread of ``driver``."""
    rest_of_machine_cpu_s: float
    """Used by all other processes of this machine."""
    look_s: float
    """Mean time until all engines and actors reported their status."""
    num_groups: int
    """Groups that returned to the driver in the window."""
    group_turns: int
    """Turns of these groups."""
    group_bytes: int
    """Size of their record batches."""
    environment_mib: float
    """Private memory of one env runner, mean."""
    environment_connections: float
    """TCP connections of one env runner, mean."""
    driver_mib: float
    controller_mib: float
    raylet_mib: float
    """Private memory of one raylet, mean."""


def measure_nodes(
    num_nodes: int,
    puzzles: list[Puzzle],
    model_dir: Path,
    folder: Path,
    *,
    warm_up_s: float,
    seconds: float,
) -> NodesWindow:
    """Start a number of nodes, keep all slots busy, and measure after the warm-up.

    Args:
        num_nodes: number of nodes without the head.
        puzzles: the puzzles to play.
        model_dir: directory of the tokenizer.
        folder: new folder for the groups' files.
        warm_up_s: seconds from the first finished group to the window.
        seconds: length of the window.

    Raises:
        EngineError, RemoteTimeout: a part did not start, or nothing was played.
    """
    with _cluster(num_nodes), _engines_and_pool(model_dir, num_nodes) as (engines, pool):
        stream = GroupStream(pool, puzzles, folder, num_groups=GROUPS_PER_NODE * num_nodes)
        try:
            _await_group(stream, since=0)
            stream.keep_up(warm_up_s)
            return _window(num_nodes, engines, pool, stream, seconds=seconds)
        finally:
            stream.close()


def _await_group(stream: GroupStream, *, since: int) -> None:
    """Wait until more than ``since`` groups are finished."""
    deadline = time.monotonic() + _TIMEOUT_S
    while stream.num_finished == since:
        if time.monotonic() > deadline:
            raise RemoteTimeout(
                f"no group came back in {_TIMEOUT_S:g} s: look at the env runners' logs"
            )
        stream.keep_up(_LOOK_EVERY_S)


@contextmanager
def _cluster(num_nodes: int) -> Iterator[None]:
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    use_start_limits()
    head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(num_nodes):
            cluster.add_node(num_cpus=_CPUS_PER_NODE, object_store_memory=_STORE_BYTES)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def _engines_and_pool(
    model_dir: Path, num_nodes: int
) -> Iterator[tuple[PolicyEngines, RolloutPool]]:
    run_id = f"scaling-{num_nodes}"
    config = load_config(
        None,
        [
            f"game={GAME}",
            f"resources.engines={num_nodes}",
            f"resources.env_runners={num_nodes}",
            f"resources.cpus_per_env_runner={_CPUS_PER_ENVIRONMENT}",
            f"resources.oracle_actors={num_nodes}",
            f"resources.cpus_per_oracle_actor={_CPUS_PER_ORACLE}",
            f"engine.max_num_seqs={SLOTS_PER_NODE}",
            f"engine.request_timeout_s={_TIMEOUT_S}",
            f"engine.start_timeout_s={_TIMEOUT_S}",
        ],
    )
    pieces = read_chat_pieces(model_dir)
    tokenizer = ChatTokenizer(model_dir, pieces)
    engines = deploy_simulated_engines(
        run_id,
        num_engines=num_nodes,
        num_slots=SLOTS_PER_NODE,
        seconds_per_turn=SECONDS_PER_TURN,
        answers=[tokenizer.answer(f"```{move}```") for move in ("Up", "Down", "Left", "Right")],
        num_cpus=_CPUS_PER_ENGINE,
        start_timeout_s=_TIMEOUT_S,
    )
    pool = start_pool(
        config, run_id=run_id, model_dir=model_dir, pieces=pieces, engine_names=engines.names
    )
    try:
        pool.wait_until_there(num_nodes, timeout_s=_TIMEOUT_S)
        yield engines, pool
    finally:
        pool.close()
        engines.remove()


@dataclass(frozen=True, slots=True)
class _Totals:
    """The counters at one moment."""

    at: float
    turns: int
    calls: float
    cpu_s: dict[str, float]
    machine_s: float
    groups: int
    group_turns: int
    group_bytes: int


def _totals(engines: PolicyEngines, pool: RolloutPool, stream: GroupStream) -> _Totals:
    stats = engines.stats(timeout_s=_TIMEOUT_S)
    if any(one is None for one in stats):
        raise RemoteTimeout(f"a simulated engine is away: {engines.names}")
    at = time.monotonic()
    machine = psutil.cpu_times()
    return _Totals(
        at=at,
        turns=sum(one.num_requests for one in stats if one is not None),
        calls=pool.counters(timeout_s=_TIMEOUT_S)["num_calls"],
        cpu_s={**cpu_seconds(), "collector": _collector_cpu_s()},
        machine_s=sum(machine) - machine.idle - machine.iowait - machine.guest,
        groups=stream.num_finished,
        group_turns=stream.num_turns,
        group_bytes=stream.num_bytes,
    )


def _collector_cpu_s() -> float:
    """Return the processor time of the thread that collects groups."""
    ids = {thread.native_id for thread in threading.enumerate() if thread.name == "collector"}
    return sum(
        thread.user_time + thread.system_time
        for thread in psutil.Process().threads()
        if thread.id in ids
    )


def _window(
    num_nodes: int,
    engines: PolicyEngines,
    pool: RolloutPool,
    stream: GroupStream,
    *,
    seconds: float,
) -> NodesWindow:
    for handle in engines.handles:
        handle.reset_clock.remote().result(timeout_s=_TIMEOUT_S)
    before = _totals(engines, pool, stream)
    looks: list[float] = []
    while time.monotonic() - before.at < seconds:
        stream.keep_up(_LOOK_EVERY_S)
        started = time.monotonic()
        engines.stats(timeout_s=_TIMEOUT_S)
        pool.actors.refresh(timeout_s=_TIMEOUT_S)
        looks.append(time.monotonic() - started)
    _await_group(stream, since=before.groups)
    clocks: list[SlotClock] = [
        handle.clock.remote().result(timeout_s=_TIMEOUT_S) for handle in engines.handles
    ]
    after = _totals(engines, pool, stream)
    cpu_s = {name: after.cpu_s[name] - before.cpu_s.get(name, 0.0) for name in after.cpu_s}
    ours = sum(used for name, used in cpu_s.items() if name != "collector")
    return NodesWindow(
        num_nodes=num_nodes,
        seconds=after.at - before.at,
        num_turns=after.turns - before.turns,
        num_calls=int(after.calls - before.calls),
        empty_fraction=sum(clock.empty_fraction for clock in clocks) / num_nodes,
        cpu_s=cpu_s,
        rest_of_machine_cpu_s=max(0.0, after.machine_s - before.machine_s - ours),
        look_s=sum(looks) / len(looks),
        num_groups=after.groups - before.groups,
        group_turns=after.group_turns - before.group_turns,
        group_bytes=after.group_bytes - before.group_bytes,
        **_sizes(),
    )


def _sizes() -> dict[str, float]:
    """Return memory and connections of processes; slow, so call it after the window."""
    found = processes_by_component()
    environments, raylets = found["environment"], found["raylets"]
    connections = sum(len(one.net_connections(kind="tcp")) for one in environments)
    return {
        "environment_mib": private_mib(environments) / len(environments),
        "environment_connections": connections / len(environments),
        "driver_mib": private_mib(found[DRIVER]),
        "controller_mib": private_mib(found["serve_controller"]),
        "raylet_mib": private_mib(raylets) / len(raylets),
    }
