"""The report's parts, one by one: boards, words, comparison."""

from __future__ import annotations

import json
import math

import pytest

from cast_ray.runs.report.figures import Line, line_chart
from cast_ray.runs.report.held_out import choose_showcase, gain
from cast_ray.runs.report.read import Episode, Evaluation
from cast_ray.runs.report.step_table import time_split
from cast_ray.runs.report.wording import count, duration, percent, signed
from cast_ray.statistics import Success
from tests.support.figures import figures_in
from tests.support.made_up_run import step_row
from tests.support.page import parse_page


def attempt(puzzle: str, *, solved: bool, cost: float = 3.0) -> Episode:
    return Episode(
        puzzle_id=puzzle,
        cost=cost,
        end_reason="solved" if solved else "turn_budget",
        row={},
    )


def evaluation(*episodes: Episode) -> Evaluation:
    rate = Success(success=0.0, low=0.0, high=0.0, n=len(episodes))
    return Evaluation(success=rate, episodes=episodes)


def test_data_of_charts_are_json_and_escaped() -> None:
    hostile = '"><script>'
    line = Line(name=hostile, style="a", points=((0, 1.0), (1, math.nan), (2, math.inf)))
    chart = parse_page(line_chart(hostile, "", [line], x_name="turn").chart)
    spec = json.loads(chart.one("div").attributes["data-chart"])
    assert spec["lines"] == [
        {"name": hostile, "style": "a", "points": [[0, 1], [1, None], [2, "infinite"]]}
    ]
    assert not chart.all("script")


def test_number_that_rounds_to_zero_has_no_sign() -> None:
    assert signed(-0.004, digits=2) == "0.00"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.24, "4.2 s"), (59.4, "59 s"), (523.0, "8 min 43 s"), (7500.0, "2 h 05 min")],
)
def test_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_was_not_measured_is_a_dash(value: float) -> None:
    assert {duration(value), percent(value), signed(value)} == {"–"}


def test_one_is_not_a_plural() -> None:
    assert [count(1, "step"), count(0, "step"), count(1536, "step")] == [
        "1 step",
        "0 steps",
        "1,536 steps",
    ]


def test_time_split_adds_up_and_leaves_out_what_runs_beside() -> None:
    rows = [
        step_row(
            step,
            seconds_total=10.0,
            seconds_generation=6.0,
            seconds_learner=2.5,
            seconds_sync=0.5,
            seconds_solver=4.0,
            seconds_validation=3.0,
        )
        for step in (1, 2)
    ]
    split = time_split(rows)
    assert split.other == pytest.approx(2.0)
    assert split.total == pytest.approx(26.0)  # 2 x (10 + 3): validation is not in seconds_total
    assert split.solver == pytest.approx(8.0)
    assert split.overhead_fraction == pytest.approx(3.0 / 20.0)


def test_gain_compares_boards_in_pairs() -> None:
    before = evaluation(
        attempt("a", solved=False), attempt("a", solved=True), attempt("b", solved=True)
    )
    after = evaluation(
        attempt("a", solved=True), attempt("a", solved=True), attempt("b", solved=False)
    )
    change = gain(before, after, seed=0)
    assert change is not None
    assert change.difference.value == pytest.approx((0.5 - 1.0) / 2)
    assert (change.num_better, change.num_same, change.num_worse) == (1, 0, 1)
    assert (change.difference.low, change.difference.high) == (-1.0, 0.5)


def test_showcase_takes_the_clearest_contrast_then_the_longest_way() -> None:
    before = evaluation(
        attempt("half", solved=True, cost=9.0),
        attempt("half", solved=False, cost=9.0),
        attempt("near", solved=False, cost=2.0),
        attempt("far", solved=False, cost=8.0),
    )
    after = evaluation(
        attempt("half", solved=True, cost=9.0),
        attempt("near", solved=True, cost=2.0),
        attempt("far", solved=True, cost=8.0),
    )
    shown = choose_showcase(before, after)
    assert shown is not None
    played = [(when, one.puzzle_id, one.is_solved) for when, one in shown.games.items()]
    assert played == [("before", "far", False), ("after", "far", True)]
    assert figures_in(shown.reason) == "1 1 1 1 3 3"


def test_showcase_shows_a_lost_attempt_before_and_a_solved_one_after() -> None:
    before = evaluation(attempt("a", solved=True), attempt("a", solved=False))
    after = evaluation(attempt("a", solved=False), attempt("a", solved=True))
    shown = choose_showcase(before, after)
    assert shown is not None
    assert shown.games == {"before": before.episodes[1], "after": after.episodes[1]}
    assert figures_in(shown.reason) == "1 2 1 2 1 1"
