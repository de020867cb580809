"""The charts of reports and of the page, drawn in a real browser from made-up numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from cast_ray.config.train import AdvantageConfig, TrainConfig
from cast_ray.runs.metrics import write_metrics
from cast_ray.runs.report import write_report
from cast_ray.runs.report.figures import run_data
from cast_ray.runs.report.read import GroupCounts
from cast_ray.runs.report.script import page_script
from cast_ray.statistics import Success
from solver_actors.oracle import Oracle
from tests.support.browser import DESKTOP, PATIENCE_MS, Visit, visit
from tests.support.made_up_run import new_run, play, scored, scripted, step_row, write_evaluation

expect.set_options(timeout=PATIENCE_MS)
NAN = math.nan
EXACT = TrainConfig()
WITHOUT = TrainConfig(oracle="none", advantage=AdvantageConfig(alpha=0.0))
"""No turn has credit."""
TOP, BOTTOM = 24, 162
"""Of a chart's plot, in its own units."""


@pytest.fixture(scope="module")
def address() -> str:
    """Of files."""
    return "file://"


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """An empty page that knows the modules."""
    file: Path = tmp_path_factory.mktemp("charts") / "empty.html"
    script = page_script("run_charts.js").replace("const modules", "var modules", 1)
    file.write_text(f'<body style="width: 900px"><script>{script}</script>', encoding="utf-8")
    with visit(browser, "file://", **DESKTOP) as visited:
        yield visited.open(str(file)[1:])


def drawn(page: Page, **spec: Any) -> Any:
    """Draw one chart; return what it says, its ticks, and the places of its marks."""
    page.evaluate(
        """spec => {
            const { Chart } = modules["chart.js"];
            const chart = new Chart({ label: "it", x: "step", unit: "", ...spec });
            document.body.replaceChildren(chart.element);
            return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        }""",
        spec,
    )
    return page.evaluate(
        """() => {
            const all = (name, read) => [...document.querySelectorAll(name)].map(read);
            return {
                words: document.querySelector("title")?.textContent ?? document.body.textContent,
                ticks: all(".tick.end", one => one.textContent),
                marks: all(".marker", one => {
                    const { e, f } = one.transform.baseVal.consolidate().matrix;
                    return [e, f];
                }),
                ways: all(".way", one => one.getAttribute("d")),
                names: all(".name", one => Number(one.getAttribute("y"))),
                bars: all("rect", one => [one.y.baseVal.value, one.height.baseVal.value]),
            };
        }"""
    )


def line(*points: tuple[float, float | str | None], name: str = "x", style: str = "a") -> Any:
    return {"name": name, "style": style, "points": points}


def sections(page: Page, *rows: Any, groups: Any = (), config: TrainConfig = EXACT) -> Any:
    """Return the titles of a run's charts and what each says, by section."""
    data = run_data(rows, groups, config)
    return page.evaluate(
        """run => Object.fromEntries(modules["run_charts.js"].runCharts(run).map(
            ({ id, charts }) => [id, Object.fromEntries(charts.map(
                chart => [chart.spec.label, chart.words()]))]))""",
        json.loads(json.dumps(data)),
    )


@pytest.mark.parametrize(
    "values",
    [(0.0,), (5.0,), (-3.0, 7.0), (1e-6, 3e-6), (0.123, 0.124, 0.129), (1e9, 5.0), (-2.0, -1.0)],
)
@pytest.mark.parametrize("from_zero", [True, False])
def test_every_value_has_its_place_between_the_ends(
    page: Page, values: tuple[float, ...], from_zero: bool
) -> None:
    found = drawn(page, lines=[line(*enumerate(values))], from_zero=from_zero)
    places = [y for _, y in found["marks"]]
    assert all(TOP - 0.01 <= y <= BOTTOM + 0.01 for y in places)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [places[i] for i in order] == sorted(places, reverse=True)
    xs = [x for x, _ in found["marks"]]
    assert xs == sorted(set(xs))
    ticks = found["ticks"][:-1]  # the last one names the axis
    assert len(set(ticks)) == len(ticks) >= 2


def test_infinite_values_stand_above_all_others_and_are_named(page: Page) -> None:
    found = drawn(page, lines=[line((0, 5.0), (1, "infinite"))], infinite="dead")
    (_, finite), (_, infinite) = found["marks"]
    assert infinite < finite - 20 and "dead" in found["ticks"]
    assert found["words"].endswith("x: from 5 to dead.")


def test_unknown_values_are_left_out_and_a_chart_without_any_says_so(page: Page) -> None:
    found = drawn(page, lines=[line((0, 1.0), (1, None), (2, 1.0))])
    assert len(found["marks"]) == 2 and found["ways"][0].count("L") == 1
    assert drawn(page, lines=[line((0, None))])["words"] == "not measured"


def test_names_of_lines_that_end_together_do_not_overlap(page: Page) -> None:
    same = [line((0, 0.0), (1, 0.0), name=name, style=name) for name in "abc"]
    heights = sorted(drawn(page, lines=same)["names"])
    assert all(other - one >= 15 for one, other in pairwise(heights))


@pytest.mark.parametrize(
    ("unit", "values", "ticks"),
    [
        ("share", (0.0, 1.0), ["0%", "50%", "100%"]),
        ("share", (0.0, 0.0031), ["0%", "0.1%", "0.2%", "0.3%", "0.4%"]),
        ("seconds", (0.0, 9.93e-5), ["0 µs", "50 µs", "100 µs"]),
        ("seconds", (0.0, 12.0), ["0 s", "5 s", "10 s", "15 s"]),
        ("MiB", (0.0, 3000.0), ["0 GiB", "1 GiB", "2 GiB", "3 GiB"]),
        ("moves", (-0.5, 0.5), ["−0.5", "0", "+0.5"]),
        ("tokens/s", (0.0, 2000.0), ["0", "500", "1,000", "1,500", "2,000"]),
    ],
)
def test_ticks_are_round_and_written_by_their_unit(
    page: Page, unit: str, values: tuple[float, ...], ticks: list[str]
) -> None:
    found = drawn(page, unit=unit, lines=[line(*enumerate(values))])
    assert found["ticks"][:-1] == ticks


def test_stacked_parts_fill_their_bar(page: Page) -> None:
    parts = [line((1, 1.0), (2, 2.0), style="part-a"), line((1, 3.0), (2, None), style="part-b")]
    (low, one), (_, two), (high, three) = drawn(page, parts=parts)["bars"]
    assert (two, three) == (pytest.approx(2 * one), pytest.approx(3 * one))
    assert low + one == pytest.approx(BOTTOM) and high + three == pytest.approx(low)


def test_intervals_say_their_rates(page: Page) -> None:
    rate = {"name": "before", "style": "b", "low": 0.25, "value": 0.5, "high": 0.75}
    found = drawn(page, unit="share", intervals=[rate])
    assert found["words"] == "it by step. before: 50%, 25% to 75%."


def test_what_no_step_knows_is_left_out(page: Page) -> None:
    names = [name for name in asdict(step_row(1)) if name.startswith(("engine_q", "memory_"))]
    row = step_row(
        1, oracle_hit_fraction=0.5, seconds_queueing=NAN, prefix_hit_fraction=NAN,
        seconds_long_tail=NAN, waiting_fraction=NAN, **dict.fromkeys(names, NAN),
    )  # fmt: skip
    assert set(sections(page, row)["rollouts"]) == {"Cache hits"}
    found = sections(page, row, step_row(2, engine_retries=3))
    assert "Played or sent again" in found["rollouts"]
    assert {"Turns by the solver", "Success"} <= set(found["learning"])
    without = sections(page, row, config=WITHOUT)
    assert "Turns by the solver" not in without["learning"]
    assert "Mean shifted advantage" not in without["episodes"]


def test_engines_have_a_line_each_or_their_extremes(page: Page) -> None:
    two = [
        step_row(1, engine_busy_fractions=(0.75, 0.5)),
        step_row(2, engine_busy_fractions=(0.25, NAN)),
    ]
    told = sections(page, *two)["rollouts"]["Busy engines"]
    assert "engine 0: from 75% to 25%; engine 1: from 50% to 50%." in told
    many = step_row(1, engine_busy_fractions=(0.125, 0.25, 0.5, 0.75, 1.0, NAN))
    told = sections(page, many)["rollouts"]["Busy engines"]
    assert "busiest: from 100% to 100%; mean: from 52.5% to 52.5%; idlest: from 12.5%" in told


def test_ages_of_tokens_are_shares_and_absent_where_none_is_stale(page: Page) -> None:
    rows = [
        step_row(1, staleness_max=0, staleness_tokens=(40,)),
        step_row(2, staleness_max=5, staleness_tokens=(10, 20, 4, 3, 2, 1)),
    ]
    told = sections(page, *rows)["rollouts"]["Age of the trained tokens"]
    for share in (
        "current weights: from 100% to 25%", "1 step behind: from 0% to 50%",
        "2 steps behind: from 0% to 10%", "3 steps behind or more: from 0% to 15%",
    ):  # fmt: skip
        assert share in told
    assert "Age of the trained tokens" not in sections(page, rows[0]).get("rollouts", {})


def test_groups_and_times_are_those_of_the_steps(page: Page) -> None:
    row = step_row(
        1, seconds_total=10.0, seconds_generation=6.0, seconds_learner=3.0, seconds_checkpoint=2.5
    )
    replayed = step_row(2, is_replayed=True, seconds_generation=NAN)
    counts = [GroupCounts(step=1, none_solved=1, mixed=2, all_solved=3)]
    found = sections(page, row, replayed, groups=counts)
    told = found["time"]["Seconds of each step"]
    assert "generation: from 6 s to 6 s" in told and "checkpoint: from 2.5 s" in told
    assert "other: from 1 s to 1 s" in told
    told = found["learning"]["Groups by outcome"]
    assert "all solved: from 3 to 3; mixed: from 2 to 2; none solved: from 1 to 1." in told


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two steps, with games of all three boards' first, as ``Visit.open`` takes it."""
    oracle = Oracle(max_bytes=2**24)
    run = new_run(tmp_path_factory.mktemp("run") / "run", steps=2)
    walk, idle = ["```Right```"] * 3, ["```Up```"] * 6
    for when, answers in (("before", idle), ("after", walk)):
        games = [play("_P_X_O", scripted(answers), turn_budget=6, oracle=oracle, episode=0)]
        write_evaluation(run, when, scored(games, oracle))
    write_metrics(run.metrics, [step_row(1, success=0.5), step_row(2, success=0.75)])
    rate = asdict(Success(success=0.5, low=0.25, high=0.75, n=4))
    summary = {"before": rate, "after": rate, "seconds": 9.0, "seed": 0}
    run.write_summary({**summary, "game": "sokoban", "tier": "mini", "steps": 2})
    return str(write_report(run))[1:]


@pytest.mark.parametrize("window", ["desktop", "phone"])
def test_report_fits_its_window_is_accessible_and_draws_everything(
    window: str, report: str, request: pytest.FixtureRequest
) -> None:
    visited: Visit = request.getfixturevalue(window)
    page = visited.open(report)
    expect(page.locator("#charts-learning .chart .way").first).to_be_visible()
    expect(page.locator("svg.board.sokoban").first).to_be_visible()
    expect(page.locator("[data-board]")).to_have_count(0)
    expect(page.locator("#game .position")).to_have_text(["Turn 1 of 6", "Turn 1 of 3"])
    expect(page.locator("#every-figure tbody tr")).to_have_count(2)
    visited.check_width()
    visited.check_accessibility()


@pytest.mark.parametrize("num_steps", [0, 1])
def test_report_of_hardly_any_step_shows_its_games(
    num_steps: int, phone: Visit, tmp_path: Path
) -> None:
    oracle = Oracle(max_bytes=2**24)
    run = new_run(tmp_path / "run", steps=2)
    endless = ["x" * 100_000, "```Right```", "```Right```", "```Right```"]
    games = [play("_P_X_O", scripted(endless), turn_budget=6, oracle=oracle, episode=0)]
    write_evaluation(run, "before", scored(games, oracle))
    if num_steps:
        write_metrics(run.metrics, [step_row(1, success=0.5)])
    page = phone.open(str(write_report(run))[1:])
    expect(page.locator("#game .position")).to_have_text(["Turn 1 of 4"])
    expect(page.locator("#game .answer")).to_contain_text("xxxxx")
    expect(page.locator("#learning .empty:visible")).to_have_count(1 - num_steps)
    phone.check_width()


def test_a_step_under_the_pointer_tells_its_value(desktop: Visit, report: str) -> None:
    page = desktop.open(report)
    chart = page.locator("#charts-learning figure").first
    expect(chart.locator(".readout")).to_have_text("last 75%")
    chart.locator("svg").hover(position={"x": 50, "y": 80})
    expect(chart.locator(".readout")).to_have_text("step 1 50%")
