"""Which puzzles are kept: everything follows from the order of attempt."""

from __future__ import annotations

import pytest

from cast_ray.errors import PuzzleError
from cast_ray.games.generators.collection import PuzzleCollector, SplitRule, by_cost
from cast_ray.games.puzzles import Puzzle


def puzzle(name: str, cost: int | None = 5) -> Puzzle:
    return Puzzle(
        game="sokoban",
        tier="id",
        puzzle_id=name,
        board="",
        cost_to_go=cost,
        cost_status="infinite" if cost is None else "exact",
        seed=0,
    )


def names(puzzles: list[Puzzle]) -> str:
    return " ".join(each.puzzle_id for each in puzzles)


def collect(
    rule: SplitRule, outcomes: list[Puzzle | None], *, reserved: frozenset[str] = frozenset()
) -> PuzzleCollector:
    """Return a collector that was offered outcomes until it had enough."""
    collector = PuzzleCollector(rule, patience=4, reserved=reserved)
    for outcome in outcomes:
        if not collector.is_finished:
            collector.offer(outcome)
    return collector


def test_first_distinct_puzzles_are_tested_on_and_the_next_trained_on() -> None:
    outcomes = [puzzle(name) for name in "abacbdef"]
    collector = collect(SplitRule(num_test=2, num_train=3), outcomes)
    split = collector.split()
    assert (names(split.test), names(split.train)) == ("a b", "c d e")
    assert collector.num_attempts == 7  # f was not needed
    assert not split.is_short


def test_test_set_does_not_depend_on_what_is_trained_on() -> None:
    costs = {"a": 9, "b": 2, "c": 3, "d": 9, "e": 2, "f": 9, "g": 3, "h": 3}
    outcomes = [puzzle(name, cost) for name, cost in costs.items()]
    plain = collect(SplitRule(num_test=3, num_train=2), outcomes)
    longer = collect(SplitRule(num_test=3, num_train=5), outcomes)
    ranged = collect(SplitRule(num_test=3, num_train=2, cost_range=(2, 3)), outcomes)
    assert names(plain.split().test) == names(longer.split().test) == "a b c"
    assert names(ranged.split().test) == "a b c"
    assert names(plain.split().train) == "d e"
    assert names(longer.split().train) == "d e f g h"
    assert names(ranged.split().train) == "e g"


def test_infinite_costs_are_trained_on_unless_a_range_of_exact_costs_is_wanted() -> None:
    outcomes = [puzzle("a"), puzzle("b", None), puzzle("c", 6)]
    plain = collect(SplitRule(num_test=1, num_train=1), outcomes)
    ranged = collect(SplitRule(num_test=1, num_train=1, cost_range=(0, 9)), outcomes)
    assert names(plain.split().train) == "b"
    assert names(ranged.split().train) == "c"


def test_even_sample_takes_as_many_of_each_cost_and_the_lowest_get_the_remainder() -> None:
    outcomes = [puzzle(f"{cost}{i}", cost) for i in range(3) for cost in (2, 3, 4)]
    rule = SplitRule(num_test=0, num_train=5, cost_range=(2, 4), is_even=True)
    assert names(collect(rule, outcomes).split().train) == "20 30 40 21 31"


def test_even_sample_that_lacks_a_cost_ends_and_says_what_is_missing() -> None:
    outcomes = [puzzle(f"2{i}", 2) for i in range(9)]
    rule = SplitRule(num_test=0, num_train=4, cost_range=(2, 3), is_even=True)
    split = collect(rule, outcomes).split()
    assert names(split.train) == "20 21"
    assert split.is_short
    assert "gave 2 training puzzles of exact cost 2 to 3, evenly over the costs" in split.statement
    assert "of 4 wanted (4 attempts brought no new one)" in split.statement


def test_reserved_puzzles_are_not_trained_on() -> None:
    outcomes = [puzzle(name) for name in "abcd"]
    collector = collect(SplitRule(num_test=1, num_train=2), outcomes, reserved=frozenset("ac"))
    assert (names(collector.split().test), names(collector.split().train)) == ("a", "b d")


def test_where_no_more_exist_all_are_divided_in_the_wanted_proportion() -> None:
    outcomes = [*(puzzle(name) for name in "abcdefgh"), *(puzzle(name) for name in "abcd"), None]
    split = collect(SplitRule(num_test=10, num_train=30), outcomes).split()
    assert (names(split.test), names(split.train)) == ("a b", "c d e f g h")
    assert split.is_short
    assert split.statement.startswith(
        "only 8 of 40 distinct puzzles exist as far as 12 attempts show (the last 4 attempts "
        "brought no new one), divided 10:30: the first 2 in order of attempt are test puzzles"
    )


def test_patience_counts_from_the_last_new_puzzle() -> None:
    outcomes = [puzzle("a"), None, None, None, puzzle("b"), None, None, puzzle("a"), None]
    collector = collect(SplitRule(num_test=1, num_train=5), [*outcomes, puzzle("c")])
    assert names(collector.puzzles) == "a b"


def test_no_puzzle_to_train_on_is_an_error() -> None:
    rule = SplitRule(num_test=1, num_train=1, cost_range=(7, 8))
    with pytest.raises(PuzzleError, match=r"1 test.*0 training"):
        collect(rule, [puzzle("a"), None, None, None, None]).split()


def test_order_by_cost_is_stable_and_has_infinite_costs_at_the_end() -> None:
    puzzles = [puzzle("a", None), puzzle("b", 4), puzzle("c", 2), puzzle("d", 4)]
    assert names(by_cost(puzzles)) == "c b d a"
