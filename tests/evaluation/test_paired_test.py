import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.errors import ConfigError
from cast_ray.evaluation.paired_test import holm, paired_test, sign_flip_p_value
from tests.support.made_attempts import attempts_at


def enumerated(differences: list[int]) -> float:
    """Return the p-value of all 2^n sign patterns, zeros included."""
    seen = abs(sum(differences))
    patterns = list(itertools.product((-1, 1), repeat=len(differences)))
    return sum(abs(np.dot(signs, differences)) >= seen for signs in patterns) / len(patterns)


@settings(max_examples=60)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_p_value_is_that_of_all_sign_patterns(differences: list[int]) -> None:
    assert sign_flip_p_value(np.array(differences), seed=0) == pytest.approx(
        enumerated(differences)
    )


def test_drawn_p_value_is_near_the_enumerated_one() -> None:
    differences = [3, -1, 2, 2, -2, 1, 4, -1, 1, 1, -3, 2, 1, 2, -1]
    drawn = sign_flip_p_value(np.array(differences), seed=0)
    # Two tails of 9,999 patterns: a standard deviation of 0.005 at most.
    assert drawn == pytest.approx(enumerated(differences), abs=0.02)
    assert drawn == sign_flip_p_value(np.array(differences), seed=0)


def test_five_wins_of_five_are_one_pattern_of_each_kind_of_32() -> None:
    a = attempts_at(dict.fromkeys("vwxyz", "1111"), model="a")
    b = attempts_at(dict.fromkeys("vwxyz", "0000"), model="b")
    test = paired_test(a, b, seed=0)
    assert test.p_value == pytest.approx(2 / 32)
    assert (test.difference, test.low, test.high) == (1.0, 1.0, 1.0)


def test_puzzles_are_counted_by_who_solved_them_at_all() -> None:
    a = attempts_at({"p": "1000", "q": "0000", "r": "1111", "s": "0000", "t": "0001"}, model="a")
    b = attempts_at({"p": "0000", "q": "1000", "r": "0001", "s": "0000", "t": "0000"}, model="b")
    nobody = {"u": "0000"}
    test = paired_test(
        a + attempts_at(nobody, model="a"), b + attempts_at(nobody, model="b"), seed=0
    )
    assert (test.only_a, test.only_b, test.both, test.neither) == (2, 1, 1, 2)
    assert test.num_puzzles == 6
    assert test.difference == pytest.approx((1 / 4 - 1 / 4 + 3 / 4 + 0 + 1 / 4 + 0) / 6)
    assert test.p_value == pytest.approx(enumerated([1, -1, 3, 0, 1]))


def test_models_with_different_numbers_of_attempts_are_compared_by_shares() -> None:
    a = [
        attempt
        for run, marks in enumerate(("11", "10", "00"))
        for attempt in attempts_at({"p": marks, "q": "11"}, model="a", run=run)
    ]
    b = attempts_at({"p": "1000", "q": "1100"}, model="b")
    test = paired_test(a, b, seed=0)
    assert test.difference == pytest.approx(((3 / 6 - 1 / 4) + (1 - 2 / 4)) / 2)


def test_exchanged_models_exchange_signs() -> None:
    rng = np.random.default_rng(2)
    marks = [{f"p{n}": f"{rng.integers(16):04b}" for n in range(8)} for _ in range(2)]
    a, b = (attempts_at(mark, model=name) for mark, name in zip(marks, "ab", strict=True))
    one, other = paired_test(a, b, seed=0), paired_test(b, a, seed=0)
    assert (one.difference, one.low, one.high) == pytest.approx(
        (-other.difference, -other.high, -other.low)
    )
    assert one.p_value == other.p_value
    assert (one.only_a, one.only_b) == (other.only_b, other.only_a)


def test_equal_models_differ_by_chance_alone() -> None:
    marks = {"p": "1100", "q": "0000"}
    test = paired_test(attempts_at(marks, model="a"), attempts_at(marks, model="b"), seed=0)
    assert (test.difference, test.low, test.high, test.p_value) == (0, 0, 0, 1)


def test_single_puzzle_has_an_interval_of_a_point() -> None:
    test = paired_test(attempts_at({"p": "11"}), attempts_at({"p": "10"}, model="b"), seed=0)
    assert (test.difference, test.low, test.high, test.p_value) == (0.5, 0.5, 0.5, 1)


def test_interval_is_that_of_all_bootstrap_samples() -> None:
    a = attempts_at({"p": "1111", "q": "1000", "r": "0000", "s": "1110", "t": "1000"}, model="a")
    b = attempts_at({"p": "0000", "q": "1000", "r": "1000", "s": "1000", "t": "0000"}, model="b")
    test = paired_test(a, b, seed=0)
    differences = (4 / 4, 0, -1 / 4, 2 / 4, 1 / 4)
    means = [sum(sample) / 5 for sample in itertools.product(differences, repeat=5)]
    low, high = np.percentile(means, [2.5, 97.5])
    # Means are multiples of 1/20; samples may miss a quantile by one of them.
    assert (test.low, test.high) == pytest.approx((low, high), abs=0.051)


def test_chance_alone_is_called_significant_as_seldom_as_it_should() -> None:
    rng = np.random.default_rng(7)
    significant = 0
    for trial in range(100):
        chances = rng.random(12)
        a, b = (
            attempts_at(
                {
                    f"p{n}": "".join("01"[int(x)] for x in rng.random(4) < chance)
                    for n, chance in enumerate(chances)
                },
                model=name,
            )
            for name in "ab"
        )
        significant += paired_test(a, b, seed=trial).p_value <= 0.05
    assert significant <= 14  # 5% of 100; four standard deviations of a binomial are 9


def test_other_puzzles_are_refused_in_one_sentence() -> None:
    a = attempts_at({"p": "1", "q": "1"}, model="a")
    b = attempts_at({"p": "1", "r": "1"}, model="b")
    with pytest.raises(ConfigError) as error:
        paired_test(a, b, seed=0)
    message = str(error.value)
    assert all(fact in message for fact in ("'a' and 'b'", "sokoban:id", ": 2 ", "e.g. q;"))


def test_other_games_are_refused() -> None:
    a = attempts_at({"p": "1"}, model="a")
    b = attempts_at({"p": "1"}, model="b", game="rush_hour")
    with pytest.raises(ConfigError, match="rush_hour:id, sokoban"):
        paired_test(a, b, seed=0)


def test_holm_correction_worked_by_hand() -> None:
    # Sorted: 0.01 x 4, 0.02 x 3, 0.025 x 2 but no less than the one before, 0.5 x 1.
    assert holm([0.025, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_holm_never_leaves_the_unit_interval_and_needs_no_tests() -> None:
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
