import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.scores import (
    FAILURES,
    attempts_per_puzzle,
    failure_reasons,
    pass_at_k,
    success_of,
)
from cast_ray.games.game import Effect
from tests.support.made_attempts import attempts_at, made_attempt

# Avg@k


def test_avg_at_4_is_the_mean_over_puzzles_worked_by_hand() -> None:
    attempts = attempts_at({"a": "1111", "b": "1000", "c": "0000", "d": "1100"})
    result = success_of(attempts, seed=0)
    assert result.success == 7 / 16
    assert result.n == 16


def test_interval_is_that_of_a_brute_force_bootstrap() -> None:
    outcomes = {f"p{n}": marks for n, marks in enumerate(["1111", "0000", "1100", "1000", "1110"])}
    result = success_of(attempts_at(outcomes), seed=3)
    # Other code, other random numbers: all 5^5 samples of five puzzles, each as likely.
    rates = [marks.count("1") / 4 for marks in outcomes.values()]
    means = [sum(sample) / 5 for sample in itertools.product(rates, repeat=5)]
    low, high = np.percentile(means, [2.5, 97.5])
    # Means are multiples of 1/20; 2000 samples may miss a quantile by one of them.
    assert result.low == pytest.approx(low, abs=0.051)
    assert result.high == pytest.approx(high, abs=0.051)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        chances = rng.random(30)  # of puzzles, each with one of its own: their mean is 1/2
        outcomes = {
            f"p{number}": "".join("01"[int(solved)] for solved in rng.random(4) < chance)
            for number, chance in enumerate(chances)
        }
        result = success_of(attempts_at(outcomes), seed=trial)
        covered += result.low <= 0.5 <= result.high
    # 95% of 200 are 190; four standard deviations of a binomial are 12. Were attempts drawn one by
    # one instead of puzzle by puzzle, it would be 83%.
    assert 178 <= covered <= 200


def test_attempts_of_all_runs_at_a_puzzle_are_drawn_together() -> None:
    outcomes = {f"p{number}": "1" if number % 2 else "0" for number in range(40)}
    single = success_of(attempts_at(outcomes), seed=1)
    runs = [attempt for run in range(3) for attempt in attempts_at(outcomes, run=run)]
    repeated = success_of(runs, seed=1)
    assert (repeated.success, repeated.low, repeated.high) == (
        single.success,
        single.low,
        single.high,
    )
    assert repeated.n == 3 * single.n


def test_runs_of_one_model_are_averaged() -> None:
    runs = attempts_at({"a": "11", "b": "11"}) + attempts_at({"a": "10", "b": "00"}, run=1)
    assert success_of(runs, seed=0).success == (1 + 1 / 4) / 2


def test_runs_of_different_sizes_are_refused() -> None:
    runs = attempts_at({"a": "11", "b": "11"}) + attempts_at({"a": "11"}, run=1)
    with pytest.raises(ConfigError, match=r"\b4 attempts.* 2 puzzles"):
        success_of(runs, seed=0)


def test_runs_at_other_puzzles_are_refused_though_as_many() -> None:
    runs = attempts_at({"a": "11"}) + attempts_at({"b": "11"}, run=1)
    with pytest.raises(ConfigError, match=r"\b2 attempts.* 1 puzzles.* 2 at 1\b"):
        pass_at_k(runs)


def test_attempts_of_two_models_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="'a' and 'b'"):
        success_of([made_attempt(model="b"), made_attempt(model="a")], seed=0)


def test_no_attempts_have_no_figures() -> None:
    for figure in (lambda: success_of([], seed=0), lambda: pass_at_k([])):
        with pytest.raises(ConfigError, match="no attempts"):
            figure()
    with pytest.raises(ConfigError, match="no attempts"):
        attempts_per_puzzle([])


def test_order_of_attempts_changes_nothing() -> None:
    outcomes = {f"p{number}": f"{number * number % 128:07b}" for number in range(60)}
    attempts = attempts_at(outcomes)
    shuffled = random.Random(0).sample(attempts, len(attempts))
    assert success_of(shuffled, seed=2) == success_of(attempts, seed=2)
    assert pass_at_k(shuffled) == pass_at_k(attempts)


def test_puzzles_of_two_tiers_with_one_id_are_two() -> None:
    attempts = attempts_at({"a": "11"}) + attempts_at({"a": "00"}, tier="unseen")
    result = success_of(attempts, seed=0)
    assert (result.low, result.high) == (0.0, 1.0)


def test_attempts_per_puzzle_are_counted_within_a_run() -> None:
    runs = attempts_at({"a": "110", "b": "111"}) + attempts_at({"a": "010", "b": "000"}, run=1)
    assert attempts_per_puzzle(runs) == 3


def test_missing_attempt_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'model'.* b .*sokoban:id.*\b1 times.*\b2 times"):
        attempts_per_puzzle(attempts_at({"a": "11", "b": "1"}))


# pass@k


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4))
def test_pass_at_k_is_the_share_of_all_subsets_with_a_success(marks: list[list[bool]]) -> None:
    outcomes = {
        f"p{number}": "".join("01"[is_solved] for is_solved in row)
        for number, row in enumerate(marks)
    }
    for k, found in enumerate(pass_at_k(attempts_at(outcomes)), start=1):
        by_puzzle = [
            Fraction(sum(map(any, itertools.combinations(row, k))), math.comb(5, k))
            for row in marks
        ]
        assert found == pytest.approx(float(sum(by_puzzle) / len(marks)), abs=1e-12)


def test_pass_at_1_is_avg_and_pass_at_all_the_share_solved_at_all() -> None:
    attempts = attempts_at({"a": "1000", "b": "0000", "c": "1111"})
    chances = pass_at_k(attempts)
    assert len(chances) == 4
    assert chances[0] == pytest.approx(success_of(attempts, seed=0).success)
    assert chances[-1] == pytest.approx(2 / 3)


def test_attempts_of_different_runs_make_no_larger_k() -> None:
    runs = attempts_at({"a": "10"}) + attempts_at({"a": "00"}, run=1)
    assert pass_at_k(runs) == pytest.approx((1 / 4, 1 / 2))


# Failures


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"end_reason": "deadlock"}, "deadlock"),
        ({"end_reason": "lost", "game": "minesweeper"}, "mine"),
        ({"end_reason": "lost", "game": "webshop"}, "wrong_purchase"),
        ({"end_reason": "lost", "game": "lights_out"}, "other"),
        ({"end_reason": "turn_budget"}, "budget"),
        ({"end_reason": "truncated"}, "truncated"),
        ({"end_reason": "token_budget"}, "truncated"),
        ({"end_reason": "no_answer", "effects": ()}, "no_answer"),
        ({"end_reason": "something new"}, "other"),
    ],
)
def test_end_reason_names_the_failure(columns: dict, reason: str) -> None:
    counts = failure_reasons([made_attempt(**columns)])
    assert counts == dict.fromkeys(FAILURES, 0) | {reason: 1}


@pytest.mark.parametrize(
    ("effects", "reason"),
    [
        ((Effect.INVALID, Effect.CHANGED), "budget"),  # half is not more than half
        ((Effect.INVALID, Effect.ILLEGAL, Effect.CHANGED), "invalid"),
        ((Effect.INEFFECTIVE, Effect.INEFFECTIVE, Effect.INVALID), "budget"),
    ],
)
def test_budget_spent_on_illegal_answers_is_a_failure_of_its_own(
    effects: tuple[str, ...], reason: str
) -> None:
    assert failure_reasons([made_attempt(effects=effects)])[reason] == 1


def test_lost_after_many_invalid_answers_is_still_a_mine() -> None:
    attempt = made_attempt(
        game="minesweeper", effects=(Effect.INVALID,) * 3 + (Effect.CHANGED,), end_reason="lost"
    )
    assert failure_reasons([attempt])["mine"] == 1


_ATTEMPT = st.builds(
    lambda game, end_reason, effects: replace(
        made_attempt(game=game, effects=tuple(effects), is_success=end_reason == "solved"),
        end_reason=end_reason,
    ),
    st.sampled_from(["sokoban", "minesweeper", "rush_hour", "alfworld", "webshop"]),
    st.sampled_from(
        ["solved", "lost", "deadlock", "turn_budget", "truncated", "token_budget", "stopped"]
    ),
    st.lists(st.sampled_from(list(Effect)), min_size=1, max_size=4),
)


@given(st.lists(_ATTEMPT, max_size=8))
def test_every_failed_attempt_has_one_reason(attempts: list[Attempt]) -> None:
    counts = failure_reasons(attempts)
    assert tuple(counts) == FAILURES
    assert sum(counts.values()) == sum(not attempt.is_success for attempt in attempts)
