"""The browser of training runs, in a real browser: from the list of runs down to a turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from solver_actors.oracle import Oracle
from tests.support.browsed_run import DETOUR, write_run
from tests.support.browser import PATIENCE_MS, Visit
from tests.support.site import FREE, served, site_app

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with two runs, which differ in their seed, and one that cannot be read."""
    root: Path = tmp_path_factory.mktemp("runs")
    oracle = Oracle(max_bytes=2**24)
    write_run(root / "first", oracle)
    write_run(root / "deeper" / "second", oracle, seed=11)
    write_run(root / "broken", oracle).config.write_text("no_such_setting: 1\n")
    with served(site_app(replace(FREE, runs=root))) as found:
        yield found


def test_two_runs_are_compared(desktop: Visit) -> None:
    page = desktop.open("#/runs")
    row = page.get_by_role("row").filter(has_text="broken")
    expect(row).to_contain_text("no_such_setting")
    for name in ("first", "deeper/second"):
        page.get_by_label(f"Compare {name}").check()
    desktop.check_accessibility()
    page.get_by_role("link", name="Compare these two").click()
    success = page.locator("figure.metric").filter(has_text="Success").first
    expect(success.locator("path.way")).to_have_count(2)
    expect(success.locator("title")).to_contain_text("first: from 50% to 75%")
    settings = page.locator("table.settings tbody tr")
    expect(settings).to_have_text(["seed711"])
    desktop.check_accessibility()


def test_metrics_are_chosen_and_stay(desktop: Visit) -> None:
    page = desktop.open("#/compare/first/deeper%2Fsecond")
    page.get_by_text("Choose metrics").click()
    page.get_by_label("Gradient norm", exact=True).check()
    chosen = page.locator("figure.metric").filter(has_text="Gradient norm")
    expect(chosen).to_be_visible()
    page.reload()
    expect(chosen).to_be_visible()


def test_charts_of_a_run_are_those_of_its_report(desktop: Visit) -> None:
    page = desktop.open("#/run/first")
    learning = page.locator("figure.metric").filter(has_text="Success").first
    expect(learning.locator("title")).to_contain_text("training: from 50% to 75%")
    page.get_by_text("Health of the learner and the weights").click()
    loss = page.locator("figure.metric").filter(has_text="Gradient norm")
    expect(loss.locator("svg")).to_be_visible()
    learning.locator("svg").click(position={"x": 60, "y": 80})
    expect(page.get_by_label("Step", exact=True)).to_have_value("1")
    desktop.check_accessibility()


def test_filters_lead_to_the_turn_that_lost(desktop: Visit) -> None:
    page = desktop.open("#/runs")
    page.get_by_role("link", name="first", exact=True).click()
    expect(page.locator(".trajectories tbody tr")).to_have_count(4)
    page.get_by_label("with invalid actions").check()
    expect(page.locator(".trajectories tbody tr")).to_have_count(1)
    page.get_by_label("with invalid actions").uncheck()
    page.get_by_label("Outcome").select_option("lost by deadlock")
    expect(page.locator(".trajectories tbody tr")).to_have_count(1)
    desktop.check_accessibility()
    page.get_by_role("link", name="Group 1, episode 1").click()
    expect(page.locator(".summary")).to_contain_text("no win is left")
    page.locator(".turns button.dead:not(.end)").click()
    expect(page.locator(".verdict .grade")).to_have_text("deadlock")
    expect(page.locator(".pairs dt").first).to_have_text("drop in cost-to-go")
    desktop.check_accessibility()


def test_trajectories_are_sorted_by_a_column_and_groups_show_their_board(desktop: Visit) -> None:
    page = desktop.open("#/run/first/step/1")
    expect(page.locator(".group svg.board")).to_have_count(2)
    expect(page.locator(".group svg.board title").first).to_contain_text("5")
    turns = page.locator(".trajectories tbody td[data-label=Turns]")
    expect(turns).to_have_text(["2", "6", "6", "3"])
    page.get_by_role("button", name="Turns").click()
    expect(turns).to_have_text(["6", "6", "3", "2"])
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Turns")
    desktop.check_accessibility()


def test_a_group_is_shown_alone_and_the_address_says_so(phone: Visit) -> None:
    page = phone.open("#/run/first/step/1")
    page.get_by_role("button", name="Group 1").tap()
    expect(page.locator(".trajectories tbody tr")).to_have_count(2)
    phone.check_width()
    page.reload()
    expect(page.locator(".trajectories tbody tr")).to_have_count(2)
    expect(page.locator(".count")).to_have_text("2 trajectories of group 1")


def test_a_turn_has_an_address(phone: Visit) -> None:
    page = phone.open("#/run/first/step/1/group/1/episode/0?turn=3")
    expect(page.locator(".position")).to_have_text(f"Turn 3 of {len(DETOUR)}")
    expect(page.locator(".verdict .grade")).to_have_text("no valid action")
    page.get_by_role("button", name="One turn on").tap()
    expect(page).to_have_url(f"{phone.address}/#/run/first/step/1/group/1/episode/0?turn=4")
    phone.check_width()
    phone.check_accessibility()


def test_a_run_that_is_not_there_is_told_in_words(desktop: Visit) -> None:
    page = desktop.open("#/run/nobody")
    expect(page.get_by_role("alert")).to_contain_text("nobody")
