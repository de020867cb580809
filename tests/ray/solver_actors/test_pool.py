"""Real environment and oracle actors, with a scripted policy in the engine's place."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray
import torch

from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import ActorLostError
from cast_ray.games.generators import build_puzzles
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.specs import episode_groups
from cast_ray.rollout.trajectory import SCORED_SCHEMA
from solver_actors.actors.pool import RolloutPool
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.teacher import SoftTeacher
from solver_actors.value_net.network import QNetwork, shape_for
from solver_actors.value_net.scale import ValueNetOracle, ValueScale
from solver_actors.value_net.solver import value_net_entry
from tests.support.scripted import build_test_policy, deadly_engine, scripted_engine, silent_engine

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    max_answer_tokens=16,
    prompt_tokens=2048,
    response_tokens=4000,
    conversation_tokens=20000,
    truncated="skip",
)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy")
    build_test_policy(directory)
    return directory


@pytest.fixture
def make_pool(model_dir: Path) -> Iterator:
    pools: list[RolloutPool] = []

    def make(
        latency_s: float = 0.0,
        make_engine: Callable = scripted_engine,
        teacher: SoftTeacher | None = None,
        value_net: ValueNetOracle | None = None,
    ) -> RolloutPool:
        pieces = read_chat_pieces(model_dir)
        pools.append(
            RolloutPool(
                run_id=f"pool-{time.monotonic_ns()}",
                game="sokoban",
                resources=ResourcesConfig(env_runners=2, oracle_actors=2),
                oracle_max_bytes=2**24,
                model_dir=str(model_dir),
                pieces=pieces,
                make_generate=functools.partial(make_engine, str(model_dir), pieces, latency_s),
                deadlock_ends_episode=True,
                teacher=teacher,
                value_net=value_net,
            )
        )
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def _groups(count: int, attempts: int = 8, *, game: str = "sokoban") -> list[list[EpisodeSpec]]:
    def solve(state: object) -> float:
        return float(get_solver_entry(game).build(state).cost_to_go([state])[0])

    puzzles = build_puzzles(game=game, tier="mini", count=count, seed=3, solve=solve)
    return episode_groups(puzzles, attempts=attempts, step=1, seed=7, purpose="test")


def _played(
    pool: RolloutPool, groups: list[list[EpisodeSpec]], *, timeout_s: float = 60
) -> pa.Table:
    """Play groups and return them in order."""
    for group in groups:
        pool.submit(group, SAMPLING)
    deadline = time.monotonic() + timeout_s
    batches: list[pa.RecordBatch] = []
    while len(batches) < len(groups) and time.monotonic() < deadline:
        batches += [batch for _, batch in pool.collect(timeout_s=1.0)]
    table = pa.Table.from_batches(batches, schema=SCORED_SCHEMA)
    return table.sort_by([("group", "ascending"), ("episode", "ascending")])


def test_every_episode_comes_back_once_and_scored(make_pool) -> None:
    table = _played(make_pool(), _groups(12))

    names = set(zip(table["group"].to_pylist(), table["episode"].to_pylist(), strict=True))
    assert names == {(group, episode) for group in range(12) for episode in range(8)}
    for row in table.select(["reward", "states", "cost_to_go", "cost_status"]).to_pylist():
        assert len(row["cost_to_go"]) == len(row["states"])
        assert (row["cost_to_go"][-1] == 0) == (row["reward"] == 1.0)
        assert row["cost_status"][0] == "exact"


def test_the_same_seeds_give_the_same_trajectories(make_pool) -> None:
    played = ["token_ids", "actions", "states", "reward", "cost_to_go"]
    first, second = (_played(make_pool(), _groups(4)).select(played) for _ in range(2))
    assert first.equals(second)


def test_groups_are_played_beside_each_other(make_pool) -> None:
    """A score that waits for its rollout must not hold up the solvers of other groups."""
    pool = make_pool(latency_s=0.1)
    pool.wait_until_there(2, timeout_s=60)
    _played(pool, _groups(2))

    started = time.perf_counter()
    table = _played(pool, _groups(12))
    wall = time.perf_counter() - started

    longest = table.group_by("group").aggregate([("seconds_generation", "max")])
    together = sum(longest["seconds_generation_max"].to_pylist()) / wall
    # One after the other at each of two oracles it is at most 2; all at once it would be 12.
    assert together > 4


def test_a_groups_rollouts_meet_one_table(make_pool) -> None:
    pool = make_pool()
    _played(pool, _groups(6))
    counters = pool.counters()
    assert counters["num_misses"] == 6
    # Eight trajectories are scored one by one; the table was built for the deadlock rule.
    assert counters["num_hits"] == 6 * 8


def test_oracle_actors_ask_the_teacher_they_are_given(make_pool) -> None:
    pool = make_pool(teacher=SoftTeacher(temperature=1.0, rescue="cost"))
    table = _played(pool, _groups(3))
    for row in table.select(["effects", "teacher_logprobs", "teacher_actions"]).to_pylist():
        assert len(row["teacher_logprobs"]) == len(row["effects"])
        assert all(value <= 0 for value in row["teacher_logprobs"])
        assert all(row["teacher_actions"])


def sokoban_net() -> ValueNetOracle:
    torch.manual_seed(0)
    # Over 100 KB: what Ray would keep in its object store if it were an argument.
    shape = shape_for("sokoban", "mini", d_model=64, num_heads=4, num_layers=2, output_size=64)
    return ValueNetOracle(network=QNetwork(shape).eval(), scale=ValueScale())


def estimates_are_right(table: pa.Table, net: ValueNetOracle) -> bool:
    """Return whether what is stored is what the network says here, and no cost is known."""
    oracle = Oracle(max_bytes=2**24, estimator=value_net_entry(net))
    for row in table.to_pylist():
        assert set(row["cost_status"]) == {"unknown"}
        expected = oracle.cost_to_go("sokoban", row["states"])
        np.testing.assert_allclose(row["cost_estimates"], expected, atol=1e-5)
    return True


def test_oracle_actors_ask_the_value_network_also_after_a_restart(make_pool) -> None:
    net = sokoban_net()
    pool = make_pool(value_net=net)
    assert estimates_are_right(_played(pool, _groups(3)), net)
    for oracle in pool._oracles:
        ray.kill(oracle, no_restart=False)
    assert estimates_are_right(_played(pool, _groups(3)), net)


def test_with_a_value_network_a_box_lost_at_sight_ends_the_episode(make_pool) -> None:
    table = _played(make_pool(value_net=sokoban_net()), _groups(12))
    ends = Counter(table["end_reason"].to_pylist())
    assert ends["deadlock"] > 0
    for row in table.to_pylist():
        if row["end_reason"] != "deadlock":
            continue
        *_, before, after = row["cost_estimates"]
        assert after == 3.0  # -2 times the value of a loss
        assert before < after


@pytest.mark.parametrize("game", ["minesweeper", "rush_hour"])
def test_no_solver_travels_where_a_game_has_no_deadlocks(make_pool, game: str) -> None:
    pool = make_pool(make_engine=silent_engine)
    _played(pool, _groups(3, game=game))
    counters = pool.counters()
    assert counters["num_misses"] == 3
    assert counters["num_hits"] == 3 * 8 - 3  # each look-up is a trajectory that was scored


def test_a_killed_env_runner_costs_one_retry_and_no_episode(make_pool) -> None:
    pool = make_pool(latency_s=0.5)
    pool.wait_until_there(2, timeout_s=60)
    pid = pool.actors.refresh(timeout_s=60)["environment-0"]
    # No group of up to eight turns is through after a second; all have begun.
    killer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
    killer.start()
    table = _played(pool, _groups(6), timeout_s=120)
    killer.join()
    assert table.num_rows == 6 * 8
    assert pool.num_lost_groups > 0
    assert set(table["attempt"].to_pylist()) == {0, 1}


def test_killed_oracle_costs_no_group_and_its_counters_go_on(make_pool) -> None:
    pool = make_pool(latency_s=0.2)
    _played(pool, _groups(4))
    before, pids = pool.counters(), pool.actors.refresh(timeout_s=60)
    killers = [
        threading.Timer(0.5, os.kill, (pids[f"oracle-{index}"], signal.SIGKILL)) for index in (0, 1)
    ]
    for killer in killers:
        killer.start()

    table = _played(pool, _groups(6), timeout_s=120)

    assert table.num_rows == 6 * 8
    assert set(table["attempt"].to_pylist()) == {0}
    after = pool.counters()
    assert after["num_states"] > before["num_states"]  # nothing is forgotten with a process
    now = pool.actors.refresh(timeout_s=60)
    assert {name for name in pids if now[name] != pids[name]} == {"oracle-0", "oracle-1"}


def test_group_that_ends_its_actor_again_and_again_is_named(make_pool) -> None:
    pool = make_pool(make_engine=deadly_engine)
    pool.submit(_groups(1)[0], SAMPLING)
    with pytest.raises(ActorLostError, match=r"group 0\b.*step 1\b.* 5 times"):
        while True:
            pool.collect(timeout_s=120)


def test_nothing_back_in_time_is_an_empty_list(make_pool) -> None:
    pool = make_pool(latency_s=20.0)
    pool.submit(_groups(1)[0], SAMPLING)
    assert pool.collect(timeout_s=0.5) == []
