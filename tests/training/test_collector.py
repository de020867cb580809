"""Groups issued, collected and logged beside their caller, with pools' doubles that need no Ray."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.errors import EngineError, RemoteTimeout
from cast_ray.games.generators import build_puzzles
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.trajectory import to_rollout_batch
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.collector import RolloutCollector
from cast_ray.training.schedule import RolloutSchedule, informative_groups
from solver_actors.oracle import Oracle
from solver_actors.sokoban.table import solve_sokoban
from tests.support.scripted import ScriptedPolicy, build_test_policy, mixed_play, play

OVERRIDES = ("rollout.puzzles_per_step=4", "rollout.group_size=2", "learner.mini_batches=1")


class PlayedHere:
    """A pool's double: plays a group when it is asked for it, the last one submitted first."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._policy = ScriptedPolicy(tokenizer, mixed_play(tokenizer))
        self._waiting: queue.LifoQueue[list[EpisodeSpec]] = queue.LifoQueue()
        self.submitted: list[list[EpisodeSpec]] = []
        self.failure: Exception | None = None

    def submit(self, group: list[EpisodeSpec], sampling: Sampling) -> None:
        self.submitted.append(group)
        self._waiting.put(group)

    def collect(self, *, timeout_s: float) -> list[tuple[list[EpisodeSpec], pa.RecordBatch]]:
        if self.failure is not None:
            raise self.failure
        try:
            group = self._waiting.get(timeout=timeout_s)
        except queue.Empty:
            return []
        games = [play(spec, self._policy, self._tokenizer) for spec in group]
        return [(group, Oracle(max_bytes=2**20).score(to_rollout_batch(games)))]

    def counters(self) -> dict[str, float]:
        return {"num_requests": 0.0}


class Held(PlayedHere):
    """Plays nothing at all."""

    def collect(self, *, timeout_s: float) -> list[tuple[list[EpisodeSpec], pa.RecordBatch]]:
        threading.Event().wait(timeout_s)
        return []


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def sampler() -> PuzzleSampler:
    puzzles = build_puzzles(
        game="sokoban",
        tier="mini",
        count=30,
        seed=2,
        solve=lambda state: float(solve_sokoban(state).cost_to_go([state])[0]),
    )
    return PuzzleSampler(puzzles, per_step=4, seed=0)


@pytest.fixture
def pool(tokenizer: ChatTokenizer) -> PlayedHere:
    return PlayedHere(tokenizer)


@pytest.fixture
def collector(pool: PlayedHere) -> Iterator[RolloutCollector]:
    collector = RolloutCollector(pool)
    yield collector
    collector.close()


def config_of(*overrides: str) -> TrainConfig:
    return load_config(None, [*OVERRIDES, *overrides])


def schedule_of(
    collector: RolloutCollector,
    sampler: PuzzleSampler,
    *overrides: str,
    first_step: int = 1,
    directory: RunDirectory | None = None,
) -> RolloutSchedule:
    return RolloutSchedule(
        collector,
        sampler,
        config_of(*overrides),
        first_step=first_step,
        group_file=directory.group_file if directory else lambda step, group: None,
    )


def taken(schedule: RolloutSchedule, step: int) -> tuple[pa.Table, int]:
    return schedule.take(step, on_group=lambda done, of: None)


def test_step_is_played_as_drawn_and_ordered(
    collector: RolloutCollector, sampler: PuzzleSampler
) -> None:
    schedule = schedule_of(collector, sampler)
    schedule.issue_through(1)

    table, dropped = taken(schedule, 1)

    assert dropped == 0
    assert table["group"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["puzzle"].to_pylist()[::2] == [one.board for one in sampler.draw(1)]


def test_uninformative_groups_are_replaced_and_no_seed_comes_twice(
    collector: RolloutCollector, pool: PlayedHere, sampler: PuzzleSampler
) -> None:
    without, _ = taken(schedule_of(collector, sampler), 1)
    pool.submitted.clear()

    table, dropped = taken(schedule_of(collector, sampler, "rollout.dynamic_sampling=6"), 1)

    assert dropped > 0
    assert len(informative_groups(table)) > len(informative_groups(without))
    assert table.num_rows == 8
    assert {group[0].group for group in pool.submitted} == set(range(4 + dropped))
    seeds = [spec.seed for group in pool.submitted for spec in group]
    assert len(set(seeds)) == len(seeds)


@settings(max_examples=25)
@given(bound=st.integers(0, 3), steps=st.integers(1, 6), versions=st.lists(st.integers(1, 8)))
def test_no_step_is_issued_before_its_weights_and_each_exactly_once(
    sampler: PuzzleSampler, tokenizer: ChatTokenizer, bound: int, steps: int, versions: list[int]
) -> None:
    """Whatever versions are announced, in whatever order."""
    pool = Held(tokenizer)
    collector = RolloutCollector(pool)
    schedule = schedule_of(collector, sampler, f"max_staleness={bound}", f"steps={steps}")
    reached = 0
    for version in versions:
        reached = max(reached, version)
        schedule.issue_through(version)
        out = [group[0].step for group in pool.submitted]
        expected = range(1, min(reached + bound, steps) + 1)
        assert out == [step for step in expected for _ in range(4)]
    for group in pool.submitted:
        oldest = {spec.min_weight_version for spec in group}
        assert oldest == {max(group[0].step - bound, 1)}
    collector.close()


def test_logged_groups_are_on_disk_before_they_count_and_not_played_again(
    collector: RolloutCollector, pool: PlayedHere, sampler: PuzzleSampler, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "run", TrainConfig())
    first, _ = taken(schedule_of(collector, sampler, directory=directory), 1)
    assert {path.name for path in directory.groups.iterdir()} == {
        f"step-00001-group-{group:05d}.parquet" for group in range(4)
    }
    directory.group_file(1, 2).unlink()  # as if the driver had been lost before it came back
    damaged = bytearray(directory.group_file(1, 1).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    directory.group_file(1, 1).write_bytes(damaged)
    pool.submitted.clear()

    again, _ = taken(schedule_of(collector, sampler, directory=directory), 1)

    assert sorted(group[0].group for group in pool.submitted) == [1, 2]
    timed = ["seconds_generation", "seconds_environment"]
    assert again.drop_columns(timed).equals(first.drop_columns(timed))


class Slow(PlayedHere):
    """Plays a turn whenever it is asked how many it played, and ends its groups after four."""

    num_turns = 0

    def collect(self, *, timeout_s: float) -> list[tuple[list[EpisodeSpec], pa.RecordBatch]]:
        if self.num_turns < 4:
            threading.Event().wait(0.01)
            return []
        return super().collect(timeout_s=timeout_s)

    def counters(self) -> dict[str, float]:
        self.num_turns += 1
        return {"num_requests": float(self.num_turns)}


def test_long_games_are_waited_for_while_turns_are_played(
    tokenizer: ChatTokenizer, sampler: PuzzleSampler
) -> None:
    collector = RolloutCollector(slow := Slow(tokenizer))
    table, _ = taken(schedule_of(collector, sampler, "rollout.timeout_s=0.2"), 1)
    assert slow.num_turns == 4
    assert table.num_rows == 8
    collector.close()


def test_groups_that_do_not_come_back_are_given_up_with_a_name(
    tokenizer: ChatTokenizer, sampler: PuzzleSampler
) -> None:
    collector = RolloutCollector(Held(tokenizer))
    schedule = schedule_of(collector, sampler, "rollout.timeout_s=0.3")
    with pytest.raises(RemoteTimeout, match=r"4 of 4.*rollout\.timeout_s"):
        taken(schedule, 1)
    collector.close()


def test_failure_in_an_episode_reaches_whoever_waits(
    collector: RolloutCollector, pool: PlayedHere, sampler: PuzzleSampler
) -> None:
    pool.failure = EngineError("the engine is gone")
    with pytest.raises(EngineError, match="the engine is gone"):
        taken(schedule_of(collector, sampler), 1)
