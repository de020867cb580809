"""Dynamic sampling with a played step's double: which groups stay, under which numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.errors import PuzzleError
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.specs import episode_groups
from cast_ray.training.schedule import informative_groups, play_informative
from tests.support.rooms import FIXED


def puzzle(number: int) -> Puzzle:
    return Puzzle(
        game="sokoban",
        tier="mini",
        puzzle_id=f"{number:016x}",
        board="P_X_O",
        cost_to_go=3,
        cost_status="exact",
        seed=number,
    )


PUZZLES = [puzzle(number) for number in range(40)]


class PlayedGroups:
    """Plays two episodes a group, whose rewards are told by the group's number."""

    def __init__(self, informative: Sequence[bool]) -> None:
        self._informative = informative
        self.calls: list[tuple[list[int], int]] = []

    def __call__(self, puzzles: list[Puzzle], first_group: int) -> pa.Table:
        self.calls.append(([one.seed for one in puzzles], first_group))
        groups = [g for i in range(len(puzzles)) for g in [first_group + i] * 2]
        return pa.table(
            {
                "group": pa.array(groups, pa.int32()),
                "episode": pa.array([0, 1] * len(puzzles), pa.int32()),
                "puzzle": [one.seed for one in puzzles for _ in range(2)],
                "reward": pa.array(
                    [float(e and self._informative[g]) for g in groups[::2] for e in (0, 1)],
                    pa.float32(),
                ),
            }
        )


def drawn(number: int) -> list[Puzzle]:
    """Return four puzzles whose names tell the draw."""
    return [puzzle(100 * number + i) for i in range(4)]


def sampled(informative: str, *, further_draws: int) -> tuple[pa.Table, int, PlayedGroups]:
    """Play a step of four groups; ``+`` marks a group of different rewards."""
    play = PlayedGroups([mark == "+" for mark in informative])
    table, dropped = play_informative(drawn, play, num_groups=4, further_draws=further_draws)
    return table, dropped, play


def groups_of(table: pa.Table) -> list[int]:
    return table["group"].to_pylist()[::2]


def test_without_it_a_step_is_what_comes_up() -> None:
    table, dropped, play = sampled("-+--", further_draws=0)
    assert (groups_of(table), dropped) == ([0, 1, 2, 3], 0)
    assert play.calls == [([0, 1, 2, 3], 0)]


def test_informative_step_needs_no_further_draw() -> None:
    table, dropped, play = sampled("++++", further_draws=3)
    assert (groups_of(table), dropped, len(play.calls)) == ([0, 1, 2, 3], 0, 1)


def test_missing_groups_are_replaced_by_new_puzzles_with_new_numbers() -> None:
    table, dropped, play = sampled("-+-+" + "++", further_draws=3)
    assert play.calls == [([0, 1, 2, 3], 0), ([100, 101], 4)]
    assert (groups_of(table), dropped) == ([1, 3, 4, 5], 2)
    assert table["puzzle"].to_pylist()[::2] == [1, 3, 100, 101]


def test_draws_go_on_until_the_step_is_full() -> None:
    table, dropped, play = sampled("---+" + "--+" + "-+" + "+", further_draws=3)
    assert [first for _, first in play.calls] == [0, 4, 7, 9]
    assert (groups_of(table), dropped) == ([3, 6, 8, 9], 6)


def test_after_the_last_draw_the_first_uninformative_groups_fill_the_step() -> None:
    table, dropped, play = sampled("---+" + "--+", further_draws=1)
    assert len(play.calls) == 2
    assert (groups_of(table), dropped) == ([0, 1, 3, 6], 3)


def test_kept_groups_keep_all_their_episodes_in_order() -> None:
    table, _, _ = sampled("-+-+" + "++", further_draws=1)
    places = list(zip(table["group"].to_pylist(), table["episode"].to_pylist(), strict=True))
    assert places == [(group, episode) for group in (1, 3, 4, 5) for episode in (0, 1)]
    assert all(column.num_chunks == 1 for column in table.columns)


@FIXED
@given(st.lists(st.booleans(), min_size=16, max_size=16), st.integers(0, 3))
def test_step_is_always_full_and_drops_nothing_informative(
    informative: list[bool], further_draws: int
) -> None:
    play = PlayedGroups(informative)
    table, dropped = play_informative(drawn, play, num_groups=4, further_draws=further_draws)
    kept = groups_of(table)
    played = [first + i for puzzles, first in play.calls for i in range(len(puzzles))]
    assert len(kept) == len(set(kept)) == 4
    assert dropped == len(played) - 4
    assert played == list(range(len(played)))
    if further_draws:
        assert {group for group in played if informative[group]} <= set(kept)


def test_rewards_that_differ_are_told_from_those_that_do_not() -> None:
    table = pa.table(
        {
            "group": pa.array([7, 2, 7, 2, 5], pa.int32()),
            "reward": pa.array([1.0, 1.0, 0.0, 1.0, 1.0], pa.float32()),
        }
    )
    assert informative_groups(table).tolist() == [7]


# The puzzles and seeds of further draws.


def numbers(sampler: PuzzleSampler, step: int, further: int) -> list[int]:
    return [one.seed for one in sampler.draw(step, further)]


def test_first_draw_is_that_of_a_run_without_dynamic_sampling() -> None:
    sampler = PuzzleSampler(PUZZLES, per_step=4, seed=3)
    epoch = [number for step in range(1, 11) for number in numbers(sampler, step, 0)]
    assert sorted(epoch) == list(range(40))


@FIXED
@given(st.integers(1, 30), st.integers(0, 1000))
def test_draws_of_a_step_share_no_puzzle_until_all_have_come_up(step: int, seed: int) -> None:
    sampler = PuzzleSampler(PUZZLES, per_step=4, seed=seed)
    assert sorted(n for further in range(10) for n in numbers(sampler, step, further)) == list(
        range(40)
    )


def test_a_draw_follows_from_seed_step_and_number_alone() -> None:
    one = PuzzleSampler(PUZZLES, per_step=4, seed=3)
    asked_more = PuzzleSampler(PUZZLES, per_step=4, seed=3)
    for step in range(1, 5):
        for further in range(3):
            asked_more.draw(step, further)
    assert numbers(one, 5, 2) == numbers(asked_more, 5, 2)
    assert numbers(one, 5, 2) != numbers(one, 6, 2)
    assert numbers(one, 5, 2) != numbers(PuzzleSampler(PUZZLES, per_step=4, seed=4), 5, 2)


def test_steps_draw_further_in_orders_of_their_own() -> None:
    # Among so many, the two steps' own puzzles would hardly be missed in a common order.
    sampler = PuzzleSampler([puzzle(number) for number in range(2000)], per_step=4, seed=3)
    assert numbers(sampler, 5, 1) != numbers(sampler, 6, 1)


def test_fewer_puzzles_than_a_step_takes_are_drawn_again() -> None:
    sampler = PuzzleSampler(PUZZLES[:3], per_step=4, seed=0)
    assert set(numbers(sampler, 1, 2)) == {0, 1, 2}
    with pytest.raises(PuzzleError, match=r"puzzles\.num_train"):
        PuzzleSampler([], per_step=4, seed=0)


def test_episodes_of_further_draws_have_seeds_of_their_own() -> None:
    def seeds(first_group: int) -> set[int]:
        groups = episode_groups(
            PUZZLES[:4],
            attempts=8,
            step=2,
            seed=0,
            purpose="rollout",
            first_group=first_group,
        )
        assert [group[0].group for group in groups] == list(range(first_group, first_group + 4))
        return {spec.seed for group in groups for spec in group}

    first, second, third = seeds(0), seeds(4), seeds(8)
    assert len(first | second | third) == 3 * 32
