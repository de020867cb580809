"""The report's parts, one by one: scales, charts, boards, words, comparison."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.runs.report.boards import draw_board
from cast_ray.runs.report.held_out import choose_showcase, gain
from cast_ray.runs.report.line_chart import Line, count_scale, line_chart, value_scale
from cast_ray.runs.report.read import Episode, Evaluation
from cast_ray.runs.report.step_table import time_split
from cast_ray.runs.report.svg import tag
from cast_ray.runs.report.wording import count, credit, duration, signed
from cast_ray.statistics import Success
from tests.support.figures import figures_in
from tests.support.made_up_run import step_row
from tests.support.page import Element, parse_page
from tests.support.rooms import FIXED

FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)


def drawn(*points: tuple[float, float]) -> Element:
    line = Line(label="x", style="a", points=points)
    return parse_page(
        line_chart([line], title="t", x_name="step", write=str, infinite="dead", size=(300, 200))
    )


def marks(chart: Element) -> list[tuple[float, float]]:
    places = [mark.attributes["transform"] for mark in chart.all("mark")]
    pairs = [place.removeprefix("translate(").removesuffix(")").split() for place in places]
    return [(float(x), float(y)) for x, y in pairs]


def attempt(puzzle: str, *, solved: bool, cost: float = 3.0) -> Episode:
    return Episode(
        puzzle_id=puzzle,
        game="sokoban",
        turns=(),
        costs=(cost,),
        last_state="",
        end_reason="solved" if solved else "turn_budget",
        is_solved=solved,
    )


def evaluation(*episodes: Episode) -> Evaluation:
    rate = Success(success=0.0, low=0.0, high=0.0, n=len(episodes))
    return Evaluation(success=rate, episodes=episodes)


@FIXED
@given(st.lists(FLOATS, min_size=1, max_size=8), st.booleans())
def test_value_scale_holds_every_value_between_its_ends(
    values: list[float], from_zero: bool
) -> None:
    scale = value_scale(values, start=200.0, end=10.0, from_zero=from_zero)
    slack = 1e-6 * max(1.0, *map(abs, values))
    assert scale.low - slack <= min(values)
    assert max(values) <= scale.high + slack
    assert list(scale.ticks) == sorted(set(scale.ticks))
    assert 2 <= len(scale.ticks) <= 8
    assert scale(scale.low) == 200.0
    assert scale(scale.high) == pytest.approx(10.0)


@FIXED
@given(st.integers(0, 5000), st.integers(0, 5000))
def test_count_scale_has_whole_ticks_inside_its_ends(first: int, length: int) -> None:
    scale = count_scale([float(first), float(first + length)], start=0.0, end=100.0)
    assert all(tick == int(tick) for tick in scale.ticks)
    assert all(0 <= scale(tick) <= 100 for tick in scale.ticks)
    assert 1 <= len(scale.ticks) <= 12


def test_larger_values_stand_higher_and_later_steps_further_right() -> None:
    (x1, y1), (x2, y2) = marks(drawn((1.0, 0.2), (2.0, 0.4)))
    assert x1 < x2
    assert y1 > y2


def test_infinite_values_stand_above_all_others_and_are_named() -> None:
    chart = drawn((0.0, 5.0), (1.0, math.inf))
    assert marks(chart)[1][1] < marks(chart)[0][1]
    assert "dead" in [text.text for text in chart.all("tick")]


def test_unknown_values_leave_a_gap() -> None:
    assert len(marks(drawn((0.0, 1.0), (1.0, math.nan), (2.0, 1.0)))) == 2


def test_single_point_is_a_mark_without_a_line() -> None:
    chart = drawn((1.0, 0.5))
    assert len(marks(chart)) == 1
    assert not chart.all("line")


def test_names_of_lines_that_end_together_do_not_overlap() -> None:
    lines = [
        Line(label=name, style=style, points=((0.0, 0.0), (1.0, 0.0)))
        for name, style in (("one", "a"), ("two", "b"), ("three", "c"))
    ]
    chart = parse_page(line_chart(lines, title="t", x_name="step", write=str))
    heights = sorted(float(name.attributes["y"]) for name in chart.all("name"))
    assert heights[1] - heights[0] >= 15
    assert heights[2] - heights[1] >= 15


def test_sokoban_board_draws_every_piece_once() -> None:
    board = parse_page(draw_board("sokoban", "#####\n#PXO#\n#*__#\n#####"))
    pieces = [
        (use.attributes["href"], use.attributes["x"], use.attributes["y"])
        for use in board.all("use")
    ]
    assert pieces == [
        ("#player", "20", "20"),
        ("#box", "40", "20"),
        ("#target", "60", "20"),
        ("#target", "20", "40"),
        ("#stored", "20", "40"),
    ]


def test_player_on_a_target_shows_both() -> None:
    board = parse_page(draw_board("sokoban", "SX"))
    assert [use.attributes["href"] for use in board.all("use")] == ["#target", "#player", "#box"]


@pytest.mark.parametrize("text", ["", "##\n#", "#P?#"])
def test_text_that_is_no_sokoban_board_is_shown_as_it_is(text: str) -> None:
    assert parse_page(draw_board("sokoban", text)).one("pre").parts == ([text] if text else [])


def test_unknown_game_is_shown_as_escaped_text() -> None:
    board = draw_board("chess", "<b>K</b>\n& q")
    assert str(board) == '<pre class="board text">&lt;b&gt;K&lt;/b&gt;\n&amp; q</pre>'


def test_tag_escapes_attributes_and_text() -> None:
    element = tag("text", '<&"', class_="a", stroke_width=1.50, x=None, data='"><script>')
    assert str(element) == (
        '<text class="a" stroke-width="1.5" data="&#34;&gt;&lt;script&gt;">&lt;&amp;&#34;</text>'
    )


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "+2"), (-4.0, "−4"), (0.0, "0"), (-0.0, "0"), (math.nan, "unknown")]
)
def test_credit_has_a_sign_unless_it_is_zero(value: float, text: str) -> None:
    assert credit(value) == text


def test_number_that_rounds_to_zero_has_no_sign() -> None:
    assert signed(-0.004, digits=2) == "0.00"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.24, "4.2 s"), (59.4, "59 s"), (523.0, "8 min 43 s"), (7500.0, "2 h 05 min")],
)
def test_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


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
    assert shown.before is not None
    assert shown.after is not None
    assert (shown.before.puzzle_id, shown.after.puzzle_id) == ("far", "far")
    assert not shown.before.is_solved
    assert shown.after.is_solved
    assert figures_in(shown.reason) == "1 1 1 1 3 3"


def test_showcase_shows_a_lost_attempt_before_and_a_solved_one_after() -> None:
    before = evaluation(attempt("a", solved=True), attempt("a", solved=False))
    after = evaluation(attempt("a", solved=False), attempt("a", solved=True))
    shown = choose_showcase(before, after)
    assert shown is not None
    assert (shown.before, shown.after) == (before.episodes[1], after.episodes[1])
    assert figures_in(shown.reason) == "1 2 1 2 1 1"
