"""A training step's play, with a pool's double that plays groups in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from cast_ray.chat import ChatTokenizer
from cast_ray.config_file import load_config
from cast_ray.generators import build_puzzles
from cast_ray.jobs.boards import PuzzleSampler
from cast_ray.jobs.dynamic_sampling import informative_groups
from cast_ray.jobs.training_step import play_step
from cast_ray.rollout import EpisodeSpec, Sampling
from cast_ray.trajectory import to_rollout_batch
from solver_actors.oracle import Oracle
from solver_actors.sokoban import solve_sokoban
from tests.scripted import ScriptedPolicy, build_test_policy, mixed_play, play

OVERRIDES = ("rollout.puzzles_per_step=4", "rollout.group_size=2", "learner.mini_batches=1")


class PlayedHere:
    """Stands in for a RolloutPool; groups come back in the order of completion: the last first."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._policy = ScriptedPolicy(tokenizer, mixed_play(tokenizer))
        self.specs: list[EpisodeSpec] = []

    def play(
        self, groups: Sequence[list[EpisodeSpec]], sampling: Sampling, *, timeout_s: float
    ) -> Iterator[pa.RecordBatch]:
        for group in reversed(groups):
            self.specs += group
            games = [play(spec, self._policy, self._tokenizer) for spec in group]
            yield Oracle(max_bytes=2**20).score(to_rollout_batch(games))


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


def played(
    tokenizer: ChatTokenizer, sampler: PuzzleSampler, *overrides: str
) -> tuple[pa.Table, int, PlayedHere]:
    pool = PlayedHere(tokenizer)
    config = load_config(None, [*OVERRIDES, *overrides])
    table, dropped = play_step(pool, sampler, config, step=1, on_group=lambda done, of: None)  # type: ignore[arg-type]
    return table, dropped, pool


def test_step_is_played_as_drawn_and_ordered(
    tokenizer: ChatTokenizer, sampler: PuzzleSampler
) -> None:
    table, dropped, _ = played(tokenizer, sampler)
    assert dropped == 0
    assert table["group"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["puzzle"].to_pylist()[::2] == [one.board for one in sampler.draw(1)]


def test_uninformative_groups_are_replaced_and_no_seed_comes_twice(
    tokenizer: ChatTokenizer, sampler: PuzzleSampler
) -> None:
    without, _, _ = played(tokenizer, sampler)
    table, dropped, pool = played(tokenizer, sampler, "rollout.dynamic_sampling=6")
    assert dropped > 0
    assert len(informative_groups(table)) > len(informative_groups(without))
    assert table.num_rows == 8
    groups = {spec.group for spec in pool.specs}
    assert groups == set(range(4 + dropped))
    seeds = [spec.seed for spec in pool.specs]
    assert len(set(seeds)) == len(seeds)
