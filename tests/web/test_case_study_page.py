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
LONG = "x" * 50_000 + " word" * 10_000
"""An answer of 100,000 characters, without a space in its first half."""


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
        answers=("I think so.\n" * 40 + "```Right```", LONG + f"{HOSTILE}\n```Right```"),
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
    expect(page.locator(".picker a[aria-current=true]")).to_have_attribute("href", "#case-2")


def test_arrow_keys_step_both_games_of_the_puzzle_that_is_shown(
    desktop: Visit, case_study: str
) -> None:
    page = desktop.open(case_study + "#case-1")
    positions = page.locator("#case-1 .position")
    expect(positions).to_have_text(["Turn 1 of 2"] * 2)
    page.locator("#case-1 .board-card").first.scroll_into_view_if_needed()
    page.keyboard.press("ArrowRight")
    expect(positions).to_have_text(["Turn 2 of 2"] * 2)
    expect(page.locator("#case-2 .position")).to_have_count(0)
    page.keyboard.press("End")  # scrolls, as it does on any page
    expect(positions).to_have_text(["Turn 2 of 2"] * 2)
    page.locator("#case-1 .turns").first.get_by_role("button").last.click()
    expect(positions).to_have_text(["The end", "Turn 2 of 2"])


def test_a_turn_tells_answer_choice_feedback_and_verdict(desktop: Visit, case_study: str) -> None:
    page = desktop.open(case_study)
    sides = page.locator("#case-1 .duel > div")
    first, second = sides.nth(0), sides.nth(1)
    expect(first.locator("mark.chosen")).to_have_text("```Right```")
    expect(first.locator(".verdict .grade")).to_have_text("best")
    expect(first.locator("svg.board.sokoban")).to_be_visible()
    expect(second.locator(".feedback")).to_be_visible()
    expect(second.locator(".verdict .grade")).to_have_text("no effect")
    page.locator("#case-1 .board-card").first.scroll_into_view_if_needed()
    page.keyboard.press("ArrowRight")
    expect(second.locator(".verdict .action")).to_have_text("no action")
    expect(page.locator("#case-1 .switches:visible")).to_have_count(0)  # nothing to show on boards


def test_text_of_a_model_runs_nothing_and_however_long_it_scrolls_in_its_place(
    phone: Visit, case_study: str
) -> None:
    page = phone.open(case_study)
    page.locator("#case-1 .turns").first.get_by_role("button").nth(1).click()
    answer = page.locator("#case-1 .answer").first
    expect(answer).to_contain_text(HOSTILE)
    assert "taken" not in page.title()
    assert answer.evaluate("one => one.clientHeight < 400 && one.scrollWidth <= one.clientWidth")
    phone.check_width()


def test_pages_of_a_shop_are_shown_as_text(desktop: Visit, case_study: str) -> None:
    page = desktop.open(case_study + "#case-2")
    expect(page.locator("#case-2 pre.prose").first).to_contain_text("A page A page")
