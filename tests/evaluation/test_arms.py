"""Curves held beside each other: against loops, and against curves whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.errors import ConfigError
from cast_ray.evaluation.experiments.arms import (
    CURVES,
    WAYPOINTS,
    Arm,
    arms_of,
    band,
    climbs,
    gap,
    race,
    smoothed,
)
from cast_ray.evaluation.experiments.plots import comparison_tables

STEPS = np.arange(0, 22, 2)


def arm(name: str, curve: np.ndarray, *, num_seeds: int = 3, num_boards: int = 8) -> Arm:
    """Return an arm whose boards and seeds are all alike."""
    solved = np.broadcast_to(curve[None, :, None], (num_seeds, len(curve), num_boards)).copy()
    return Arm(name=name, seeds=tuple(range(num_seeds)), steps=STEPS[: len(curve)], solved=solved)


def unsmoothed(curve: np.ndarray) -> np.ndarray:
    """Return what ``smoothed`` makes a curve of."""
    return np.concatenate([curve[:1], (curve[1:] - 0.6 * curve[:-1]) / 0.4])


def noisy(name: str, curve: np.ndarray, *, seed: int) -> Arm:
    rng = np.random.default_rng(seed)
    chance = np.clip(curve[None, :, None] + rng.normal(0, 0.1, (3, 1, 40)), 0, 1)
    solved = rng.binomial(4, np.broadcast_to(chance, (3, len(curve), 40))) / 4
    return Arm(name=name, seeds=(0, 1, 2), steps=STEPS, solved=solved)


def rows(name: str, *, steps: tuple[int, ...] = (0, 2), boards: int = 2) -> pl.DataFrame:
    made = [
        (name, seed, step, board, 4, (seed + step + board) % 5)
        for seed in (0, 1)
        for step in steps
        for board in range(boards)
    ]
    return pl.DataFrame(made, schema=CURVES, orient="row")


def test_arms_hold_each_run_s_share_of_each_board() -> None:
    shuffled = pl.concat([rows("CAST"), rows("DAPO")]).sample(fraction=1.0, shuffle=True, seed=3)
    first, second = sorted(arms_of(shuffled), key=lambda one: one.name)
    assert (first.name, second.name, first.seeds) == ("CAST", "DAPO", (0, 1))
    for seed in (0, 1):
        for t, step in enumerate((0, 2)):
            for board in (0, 1):
                assert first.solved[seed, t, board] == ((seed + step + board) % 5) / 4


@pytest.mark.parametrize(
    "curves",
    [
        pl.concat([rows("CAST"), rows("DAPO", steps=(0, 3))]),
        pl.concat([rows("CAST"), rows("DAPO", boards=3)]),
        rows("CAST").head(7),
    ],
)
def test_runs_that_cannot_be_held_beside_each_other_are_refused(curves: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"validated.*same steps"):
        arms_of(curves)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_smoothing_is_the_exponential_mean(curve: list[float]) -> None:
    expected = [curve[0]]
    for value in curve[1:]:
        expected.append(0.6 * expected[-1] + 0.4 * value)
    assert smoothed(np.array(curve)).tolist() == pytest.approx(expected)


def test_twice_as_fast_takes_half_the_steps() -> None:
    baseline = np.linspace(0.2, 0.7, 11)
    slow = smoothed(baseline)
    fast = np.interp(np.minimum(2 * STEPS, 20), STEPS, slow)
    found = race(arm("CAST", unsmoothed(fast)), arm("DAPO", baseline))
    assert (found.baseline_step, found.runner_step) == (20, 10.0)
    assert found.best == pytest.approx(smoothed(baseline)[-1])
    assert found.ratio.value == 0.5
    assert (found.ratio.low, found.ratio.high) == (0.5, 0.5)


def test_who_never_gets_there_takes_infinitely_long() -> None:
    low, high = arm("DAPO", np.full(11, 0.3)), arm("CAST", np.linspace(0.3, 0.9, 11))
    assert race(low, high).runner_step == math.inf
    assert race(low, high).ratio.high == math.inf
    assert race(high, low).runner_step == 0.0


def test_the_start_model_s_score_is_nobody_s_best() -> None:
    falling = arm("DAPO", np.linspace(0.9, 0.1, 11))
    assert race(falling, falling).baseline_step == 2


def test_an_arm_against_itself_needs_as_many_steps() -> None:
    one = noisy("CAST", np.linspace(0.2, 0.8, 11), seed=0)
    found = race(one, one)
    assert found.ratio.value == 1.0
    assert found.ratio.low <= 1.0 <= found.ratio.high


def test_on_the_way_twice_as_fast_is_everywhere_in_half_the_steps() -> None:
    slow = 0.2 + 0.5 * (STEPS / 20) ** 3
    fast = np.interp(np.minimum(2 * STEPS, 20), STEPS, slow) + 1e-9  # above its own rounding
    both = [arm("CAST", unsmoothed(fast)), arm("DAPO", unsmoothed(slow))]
    first, second = climbs(both, both[1])
    assert (first.arm, second.arm, first.baseline) == ("CAST", "DAPO", "DAPO")
    assert WAYPOINTS == (0.25, 0.5, 0.75, 0.9, 1.0)
    # The cube is there at 0.63, 0.79, 0.91 and 0.97 of the steps.
    assert second.steps == (14.0, 16.0, 20.0, 20.0, 20.0)
    assert first.steps == (8.0, 8.0, 10.0, 10.0, 10.0)


def test_the_way_ends_where_the_race_does() -> None:
    """The last waypoint is the baseline's best itself, to the bit, for it and for any other."""
    for seed in range(20):
        curves = np.random.default_rng(seed).uniform(0, 1, (2, 11))
        one, other = (arm(name, curve) for name, curve in zip("ab", curves, strict=True))
        ways, found = climbs([one, other], other), race(one, other)
        if ways:
            assert ways[0].steps[-1] == found.runner_step
            assert ways[1].steps[-1] == found.baseline_step


def test_a_baseline_that_only_fell_has_no_way() -> None:
    falling = arm("DAPO", np.linspace(0.9, 0.1, 11))
    assert climbs([falling], falling) == []


def seeded(name: str, curves: dict[int, list[float]], steps: list[int]) -> Arm:
    solved = np.array([curves[seed] for seed in curves])[:, :, None]
    return Arm(name=name, seeds=tuple(curves), steps=np.array(steps), solved=solved)


def test_area_is_that_of_the_trapezoids_and_paired_by_seed() -> None:
    # Uneven steps: (0.2 + 0.6) / 2 * 2 + (0.6 + 0.8) / 2 * 6 = 5.0 over 8 steps, and so on.
    steps = [0, 2, 8]
    ours = seeded("CAST", {0: [0.2, 0.6, 0.8], 1: [0.2, 0.2, 0.4], 3: [0.9] * 3}, steps)
    theirs = seeded("DAPO", {1: [0.2, 0.2, 0.2], 0: [0.2, 0.4, 0.4], 7: [0.0] * 3}, steps)
    found = gap(ours, theirs)
    first = (0.8 + 4.2) / 8 - (0.6 + 2.4) / 8
    second = (0.4 + 1.8) / 8 - 0.2
    mean, error = (first + second) / 2, abs(first - second) / 2
    assert (found.seeds, found.unpaired) == ((0, 1), (3, 7))
    assert found.area.value == pytest.approx(mean)
    # Two pairs: t(0.975, 1) = 12.7062, and the standard error is half of their difference.
    assert found.area.high - mean == pytest.approx(12.7062 * error, rel=1e-5)


def test_area_without_a_pair_is_unknown_and_said_so() -> None:
    ours, theirs = (seeded(n, {s: [0.1, 0.2]}, [0, 2]) for n, s in (("CAST", 0), ("DAPO", 1)))
    found = gap(ours, theirs)
    assert math.isnan(found.area.value)
    runs = pl.DataFrame(
        {
            "arm": ["CAST", "DAPO"],
            "seed": ["0", "1"],
            **{key: [0.1, 0.2] for key in ["before", "after", "regret"]},
            **dict.fromkeys(
                ["solver_of_turn", "solver_of_trajectory", "solver_of_step"], [0.0] * 2
            ),
        }
    )
    races = [race(ours, theirs)]
    text = comparison_tables([ours, theirs], runs, races, gaps=[found])
    assert "| CAST | — (without a pair: 0, 1) |" in " ".join(text.split())


def test_swapping_the_arms_turns_the_gap_around() -> None:
    one = noisy("a", np.linspace(0.1, 0.6, 11), seed=1)
    two = noisy("b", np.linspace(0.1, 0.5, 11), seed=2)
    there, back = gap(one, two).area, gap(two, one).area
    assert (there.value, there.low) == (pytest.approx(-back.value), pytest.approx(-back.high))
    assert there.value > 0


def test_intervals_cover_what_they_should() -> None:
    """Of worlds with a known ratio's draws, the 95% interval misses few; and it is not a point."""
    slow, fast = np.linspace(0.2, 0.7, 11), np.minimum(np.linspace(0.2, 1.2, 11), 0.7)
    truth = race(arm("CAST", fast), arm("DAPO", slow)).ratio.value
    hits = widths = 0
    for seed in range(12):
        found = race(noisy("CAST", fast, seed=seed), noisy("DAPO", slow, seed=100 + seed))
        hits += found.ratio.low <= truth <= found.ratio.high
        widths += found.ratio.high > found.ratio.low
    assert hits >= 9
    assert widths >= 9


def test_a_band_holds_its_mean_and_narrows_with_boards() -> None:
    one = noisy("CAST", np.linspace(0.2, 0.8, 11), seed=0)
    few = Arm(name="few", seeds=one.seeds, steps=STEPS, solved=one.solved[:, :, :6])
    for estimate, mean in zip(band(one), one.solved.mean(axis=(0, 2)), strict=True):
        assert estimate.value == pytest.approx(mean)
        assert estimate.low <= mean <= estimate.high
    width = [np.mean([e.high - e.low for e in band(which)]) for which in (one, few)]
    assert width[0] < width[1]
