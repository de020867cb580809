"""The bootstrap, against counting by hand."""

import itertools

import numpy as np

from cast_ray.statistics import bootstrap, mean_estimate, success_rate


def test_interval_of_a_mean_is_that_of_all_resamples() -> None:
    values = np.array([0.0, 0.0, 1.0, 0.5])
    means = [np.mean(one) for one in itertools.product(values, repeat=4)]
    low, high = np.percentile(means, [2.5, 97.5])
    found = mean_estimate(values, seed=0, num_draws=20_000)
    assert (found.value, found.n) == (0.375, 4)
    assert (found.low, found.high) == (low, high)


def test_populations_are_drawn_from_one_after_the_other() -> None:
    """The order in which recorded intervals were drawn."""
    rng = np.random.default_rng(7)
    rows, columns = rng.integers(0, 5, (100, 5)), rng.integers(0, 3, (100, 3))
    seen: list[np.ndarray] = []

    def statistic(*drawn: np.ndarray) -> np.ndarray:
        seen.extend(drawn)
        return np.zeros(100)

    bootstrap(statistic, 5, 3, seed=7, num_draws=100)
    assert np.array_equal(seen[0], rows)
    assert np.array_equal(seen[1], columns)


def test_draws_that_are_not_defined_are_left_out() -> None:
    low, high = bootstrap(lambda rows: rows[rows[:, 0] == 1, 0], 2, seed=0)
    assert (low, high) == (1, 1)


def test_infinite_values_need_the_nearest_percentile() -> None:
    values = np.array([1.0, np.inf])
    low, high = bootstrap(lambda rows: values[rows[:, 0]], 2, seed=0, method="nearest")
    assert (low, high) == (1.0, np.inf)


def test_success_counts_attempts_and_the_interval_holds_the_rate() -> None:
    result = success_rate(["a", "a", "b", "b", "c", "c"], [1, 0, 1, 1, 0, 0], seed=0)
    assert result.n == 6
    assert result.success == 0.5
    assert 0.0 <= result.low < 0.5 < result.high <= 1.0


def test_attempts_at_one_puzzle_are_resampled_together() -> None:
    """Four equal attempts at each of 50 puzzles say no more than one attempt at each."""
    rewards = np.random.default_rng(0).integers(0, 2, 50)
    puzzles = [str(index) for index in range(50)]
    single = success_rate(puzzles, rewards, seed=1)
    repeated = success_rate(np.repeat(puzzles, 4).tolist(), np.repeat(rewards, 4), seed=1)
    assert (repeated.low, repeated.high) == (single.low, single.high)
