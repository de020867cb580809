"""The case study in a real browser: one puzzle at a time, by keys alone, on desktop and phone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from cast_ray.evaluation.case_study import write_case_study
from tests.support.browser import PATIENCE_MS, Visit
from tests.support.made_attempts import made_attempt

expect.set_options(timeout=PATIENCE_MS)
BOARDS = ("######\n#P_XO#\n######", "######\n#_PXO#\n######", "######\n#__P*#\n######")
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def address() -> str:
    """Of files."""
    return "file://"


@pytest.fixture(scope="module")
def case_study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two puzzles, as ``Visit.open`` takes it."""
    first = made_attempt(
        model="amodelofalongname" * 5, is_success=True, states=BOARDS,
        costs=(2.0, 1.0, 0.0), actions=("Right", "x" * 200),
        answers=("I think so.\n" * 40 + "```Right```", f"{HOSTILE}\n```Right```"),
    )  # fmt: skip
    second = replace(
        first, model="another", is_success=False, reward=0.0, end_reason="turn_budget",
        states=(BOARDS[0],) * 3, costs=(2.0, 2.0, 2.0), actions=("Up", ""),
        effects=("ineffective", "invalid"), answers=("```Up```", HOSTILE),
    )  # fmt: skip
    shop = replace(first, game="webshop", puzzle_id="p1", states=("A page " * 60,) * 3)
    path: Path = tmp_path_factory.mktemp("case_study") / "case_study.html"
    write_case_study(path, [first, shop], [second, replace(shop, model="another")], limit=5)
    return str(path)[1:]


@pytest.mark.parametrize("window", ["desktop", "phone"])
def test_page_fits_its_window_and_is_accessible(
    window: str, case_study: str, request: pytest.FixtureRequest
) -> None:
    visited: Visit = request.getfixturevalue(window)
    for part in ("", "#case-2"):
        visited.open(case_study + part)
        visited.check_width()
        visited.check_accessibility()


def test_one_puzzle_is_shown_at_a_time_and_links_lead_to_the_others(
    desktop: Visit, case_study: str
) -> None:
    page = desktop.open(case_study)
    expect(page.locator("#case-1")).to_be_visible()
    expect(page.locator("#case-2")).to_be_hidden()
    page.locator(".picker a").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#case-2")).to_be_visible()
    expect(page.locator("#case-1")).to_be_hidden()
    expect(page.locator(".picker a[aria-current]")).to_have_attribute("href", "#case-2")


def test_arrow_keys_step_the_puzzle_that_is_shown(desktop: Visit, case_study: str) -> None:
    page = desktop.open(case_study + "#case-1")
    output = page.locator("#case-1 output")
    expect(output).to_have_text("turn 1 of 2")
    page.locator("#case-1 .stage").scroll_into_view_if_needed()
    page.keyboard.press("ArrowRight")
    expect(output).to_have_text("turn 2 of 2")
    expect(page.locator("#case-2 output")).to_have_text("turn 1 of 2")
    expect(page.locator("#case-1 .stage .frame")).to_have_count(2)


def test_text_of_a_model_runs_nothing(desktop: Visit, case_study: str) -> None:
    page = desktop.open(case_study)
    page.locator("#case-1 .column .answer").last.scroll_into_view_if_needed()
    assert HOSTILE in page.locator("#case-1 .column .answer").last.inner_text()
    assert "taken" not in page.title()


def test_without_scripts_all_puzzles_stand_below_each_other(
    desktop: Visit, case_study: str
) -> None:
    browser = desktop.page.context.browser
    assert browser is not None
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file:///{case_study}")
    expect(page.locator(".case:visible")).to_have_count(2)
    expect(page.locator(".stage:visible")).to_have_count(0)
    context.close()
