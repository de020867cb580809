"""Nodes come and go under a run: who joins gets work, who leaves takes no episode along.

Ray's own multi-node test cluster, each node with its raylet; scripted engines and simulated ones.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import ray
from ray import serve as ray_serve
from ray.cluster_utils import Cluster
from ray.experimental.internal_kv import _internal_kv_get

from cast_ray.cluster.placement import wait_for_places
from cast_ray.config.load import load_config
from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import EnvironmentSetupError
from cast_ray.games.generators import build_puzzles
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.specs import episode_groups
from serve.client.client import connect_policy
from solver_actors.actors.pool import RolloutPool
from solver_actors.registry import get_solver_entry
from tests.support.scripted import build_test_policy, scripted_engine
from tests.support.simulated_engine import deploy_simulated_engines
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    max_answer_tokens=16,
    prompt_tokens=2048,
    response_tokens=4000,
    conversation_tokens=20000,
    truncated="skip",
)
AUTOSCALER_REQUESTS = b"autoscaler_resource_request"
"""Where Ray's ``request_resources`` leaves them for this cluster's generation of autoscaler."""
JOIN_LIMIT_S = 30.0
ENGINE_JOIN_LIMIT_S = 120.0
STORE_BYTES = 2**27


@pytest.fixture(scope="module")
def empty_cluster() -> Iterator[Cluster]:
    """Return a cluster whose head runs nothing."""
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def cluster(empty_cluster: Cluster) -> Iterator[Cluster]:
    """Return a cluster with one node of two CPUs; what a test adds is gone after it."""
    empty_cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    yield empty_cluster
    for node in list(empty_cluster.worker_nodes):
        empty_cluster.remove_node(node)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy")
    build_test_policy(directory)
    return directory


def start_pool(
    model_dir: Path, make_generate: Callable, *, actors: int, num_cpus: float
) -> RolloutPool:
    """Start a pool that begins with one actor; two groups at a time, so that others wait."""
    return RolloutPool(
        run_id=f"elastic-{time.monotonic_ns()}",
        game="sokoban",
        resources=ResourcesConfig(
            env_runners=actors,
            min_env_runners=1,
            cpus_per_env_runner=num_cpus,
            groups_per_env_runner=2,
            cpus_per_oracle_actor=num_cpus,
        ),
        oracle_max_bytes=2**24,
        model_dir=str(model_dir),
        pieces=read_chat_pieces(model_dir),
        make_generate=make_generate,
        deadlock_ends_episode=True,
    )


def groups_of(count: int, *, attempts: int = 4) -> list[list[EpisodeSpec]]:
    """Return groups of easy boards."""

    def solve(state: object) -> float:
        return float(get_solver_entry("sokoban").build(state).cost_to_go([state])[0])

    puzzles = build_puzzles(game="sokoban", tier="mini", count=count, seed=3, solve=solve)
    return episode_groups(puzzles, attempts=attempts, step=1, seed=7, purpose="test")


class Collecting:
    """Collects in a thread of its own and says who is there and what came back."""

    def __init__(self, pool: RolloutPool, groups: list[list[EpisodeSpec]]) -> None:
        self.pool, self.batches, self._expected = pool, [], len(groups)
        for group in groups:
            pool.submit(group, SAMPLING)
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while len(self.batches) < self._expected:
            self.batches += [batch for _, batch in self.pool.collect(timeout_s=0.2)]

    def table(self, *, timeout_s: float) -> pa.Table:
        """Wait for all groups."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{len(self.batches)} of {self._expected} groups"
        return pa.Table.from_batches(self.batches)


def test_a_node_that_joins_plays_and_one_that_leaves_takes_nothing_along(
    cluster: Cluster, model_dir: Path
) -> None:
    pieces = read_chat_pieces(model_dir)
    engine = functools.partial(scripted_engine, str(model_dir), pieces, 0.4)
    # Two CPUs: one for an actor and one for the oracle. The second actor has no place yet.
    pool = start_pool(model_dir, engine, actors=2, num_cpus=1)
    try:
        pool.wait_until_there(1, timeout_s=60)
        pool.expect_more()
        groups = groups_of(40)
        collecting = Collecting(pool, groups)
        wait_until(lambda: len(collecting.batches) >= 2, timeout_s=60, what="two groups")
        assert set(pool.actors.refresh(timeout_s=10)) == {"environment-0", "oracle-0"}

        node = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

        def second_plays() -> bool:
            return any(
                member.name == "environment-1" and member.num_groups for member in pool._members
            )

        started = time.monotonic()
        wait_until(second_plays, timeout_s=JOIN_LIMIT_S, what="the second actor plays")
        seconds = time.monotonic() - started
        print(f"the node that joined plays after {seconds:.1f} s")
        wait_until(lambda: len(collecting.batches) >= 8, timeout_s=60, what="eight groups")

        cluster.remove_node(node, allow_graceful=False)
        table = collecting.table(timeout_s=180)
    finally:
        pool.close()
    names = list(zip(table["group"].to_pylist(), table["episode"].to_pylist(), strict=True))
    assert sorted(names) == [(group, episode) for group in range(40) for episode in range(4)]
    assert pool.num_lost_groups > 0  # it did leave in the middle of some
    assert set(table["attempt"].to_pylist()) == {0, 1}


def test_an_engine_that_finds_a_place_later_answers(cluster: Cluster, model_dir: Path) -> None:
    tokenizer = ChatTokenizer(model_dir, read_chat_pieces(model_dir))
    engines = deploy_simulated_engines(
        f"late-{time.monotonic_ns()}",
        num_engines=2,
        num_slots=4,
        seconds_per_turn=0.3,
        answers=[tokenizer.answer(f"```{move}```") for move in ("Up", "Down", "Left", "Right")],
        num_cpus=1.5,
        num_at_start=1,
    )
    generate = functools.partial(
        connect_policy,
        [handle.app_name for handle in engines.handles],
        expected=[engines.handles[1].app_name],
        slots_per_engine=4,
        timeout_s=60,
        recovery_timeout_s=60,
    )
    pool = start_pool(model_dir, generate, actors=1, num_cpus=0.25)
    try:
        pool.wait_until_there(1, timeout_s=60)
        collecting = Collecting(pool, groups_of(60))
        wait_until(lambda: len(collecting.batches) >= 2, timeout_s=60, what="two groups")
        assert [stats is None for stats in engines.stats(timeout_s=5)].count(True) == 1

        cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)

        def both_answer() -> bool:
            stats = engines.stats(timeout_s=5)
            return all(one is not None and one.num_requests for one in stats)

        started = time.monotonic()
        wait_until(both_answer, timeout_s=ENGINE_JOIN_LIMIT_S, what="both engines answer")
        seconds = time.monotonic() - started
        print(f"the engine that joined answers after {seconds:.1f} s")
        assert collecting.table(timeout_s=180).num_rows == 60 * 4
    finally:
        pool.close()
        engines.remove()
        ray_serve.shutdown()


def test_a_cluster_that_is_too_small_is_asked_to_grow(cluster: Cluster) -> None:
    config = load_config(None, ["resources.engines=3", "resources.wait_for_nodes_s=0"])
    with pytest.raises(EnvironmentSetupError, match=r"engines +3 +1 CPU"):
        wait_for_places(config, say=print)

    config = load_config(None, ["resources.engines=3", "resources.wait_for_nodes_s=60"])
    said: list[str] = []
    with ThreadPoolExecutor(max_workers=1) as other:
        waiting = other.submit(wait_for_places, config, say=said.append)
        wait_until(lambda: said, timeout_s=30, what="a word about waiting for nodes")
        # What an autoscaler would see.
        asked = json.loads(_internal_kv_get(AUTOSCALER_REQUESTS))
        cluster.add_node(num_cpus=4, object_store_memory=STORE_BYTES)
        waiting.result(timeout=60)
    assert sum(bundle["CPU"] for bundle in asked) == 2 + 3 + 0.5 + 0.5
    assert re.search(r"nodes \(2 .*engines\b.* 1 CPU", said[0])


def test_a_cluster_that_never_grows_is_given_up_with_the_table(cluster: Cluster) -> None:
    config = load_config(None, ["resources.engines=9", "resources.wait_for_nodes_s=3"])
    with pytest.raises(EnvironmentSetupError) as caught:
        wait_for_places(config, say=print)
    message = str(caught.value)
    assert " 3 s" in message and "resources.wait_for_nodes_s" in message
    assert "engines" in message
    assert "ray status" in message
