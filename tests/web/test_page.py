"""The page in a real browser: people play and watch, on a desktop and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from cast_ray.games import get_game
from cast_ray.games.minesweeper_board import start_state
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.generate import GenerateRequest
from serve.site.guard import digest_of_key
from solver_actors.sokoban.table import solve_sokoban
from tests.support.browser import DESKTOP, PATIENCE_MS, Visit, visit
from tests.support.scripted import GAME, build_test_policy
from tests.support.site import RUSH_HOUR, SOKOBAN, guarded, served, site_app

expect.set_options(timeout=PATIENCE_MS)
MINES = get_game("minesweeper").encode(
    start_state(5, 5, mines=[(0, 3), (2, 1), (4, 4)], first_click=(0, 0))
)
BOARDS = {
    "sokoban": "\n".join(SOKOBAN["board"]),
    "rush_hour": RUSH_HOUR["board"],
    "minesweeper": MINES,
}
WIDE = "...EEEBB\n.......C\n.......C\nAA.....C\n........\n........\n........"
"""Rush Hour on 7 x 8 cells, with the exit in row 3: C has to go down to the last row."""
TO_A_DEADLOCK = {(1, 1): "Right", (1, 2): "Right", (1, 3): "Down", (2, 3): "Left"}
"""What to do where, to push the box of ``SOKOBAN`` to a wall for ever."""
KEYS = {"Up": "ArrowUp", "Down": "ArrowDown", "Left": "a", "Right": "d"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose agent plays best at temperature 0 and loses above."""
    tokenizer = build_test_policy(tmp_path_factory.mktemp("policy"))
    app = site_app(tokenizer=tokenizer, answer=_best_or_losing(tokenizer), max_answer_tokens=64)
    with served(app) as found:
        yield found


def _best_or_losing(tokenizer: ChatTokenizer) -> Any:
    def answer(request: GenerateRequest) -> str:
        board = tokenizer.text(request.token_ids).rpartition("Board:\n")[2]
        state = GAME.decode(board.partition("\nSteps left")[0])
        action = solve_sokoban(state).best_action(state)
        if request.temperature > 0:
            action = TO_A_DEADLOCK[divmod(state.player, state.layout.cols)]
        return f"```Up``` no\n```{action}```"

    return answer


def begin(
    to: Visit, game: str, player: str, *, temperature: float = 0.0, delay_ms: int = 0
) -> Page:
    """Paste the game's board into the form, choose who plays, and start."""
    page = to.open(f"#/play/{game}")
    page.get_by_text("Paste a board instead").click()
    page.get_by_label("Board, one line a row").fill(BOARDS[game])
    page.locator(f"input[name=player][value={player}]").check()
    if player == "agent":
        page.get_by_label("Temperature").fill(str(temperature))
    if player != "human":
        page.get_by_label("Pause between turns").fill(str(delay_ms))
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".watching svg.board")).to_be_visible()
    return page


def line(to: Visit, game: str) -> list[str]:
    """Return the solver's moves to the goal."""
    return to.api("solve", {"game": game, "board": BOARDS[game]})["line"]


def wait_for_turns(page: Page, number: int) -> None:
    expect(page.locator(".turns button:not(.end)")).to_have_count(number)


def see_the_end(page: Page) -> None:
    """Wait until an episode that plays itself is over, and go to its end."""
    page.locator(".turns .end").click()


def cell(page: Page, row: int, col: int) -> dict[str, float]:
    """Return a point inside of a cell of the board, in the board's own pixels."""
    return page.locator("svg.board").evaluate(
        """(board, [row, col]) => {
            const frame = board.getBoundingClientRect();
            const point = new DOMPoint(48 * (col + 0.5), 48 * (row + 0.5))
                .matrixTransform(board.getScreenCTM());
            return { x: point.x - frame.x, y: point.y - frame.y };
        }""",
        [row, col],
    )


def drag(page: Page, slide: str) -> None:
    """Drag a vehicle by the cells that a slide says."""
    vehicle, unit = page.locator(f"[data-vehicle={slide[0]}]"), 48.0
    box = vehicle.bounding_box()
    assert box is not None
    unit = min(box["width"], box["height"]) / 40 * 48  # a vehicle leaves 4 units free on each side
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    far = unit * int(slide[1:])
    is_upright = box["height"] > box["width"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + (0 if is_upright else far), y + (far if is_upright else 0), steps=5)
    page.mouse.up()


def test_a_person_wins_sokoban_by_keys(desktop: Visit) -> None:
    page = begin(desktop, "sokoban", "human")
    for number, action in enumerate(line(desktop, "sokoban"), start=1):
        page.keyboard.press(KEYS[action])
        wait_for_turns(page, number)
    expect(page.locator(".ending")).to_have_text("Solved.")
    desktop.check_accessibility()


def test_a_person_wins_sokoban_on_a_phone(phone: Visit) -> None:
    page = begin(phone, "sokoban", "human")
    for number, action in enumerate(line(phone, "sokoban"), start=1):
        page.get_by_role("button", name=action, exact=True).tap()
        wait_for_turns(page, number)
    expect(page.locator(".ending")).to_have_text("Solved.")
    phone.check_width()


@pytest.mark.parametrize("board", [BOARDS["rush_hour"], WIDE], ids=["usual", "wide"])
def test_a_person_wins_rush_hour_by_dragging(
    desktop: Visit, board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BOARDS, "rush_hour", board)
    page = begin(desktop, "rush_hour", "human")
    for number, action in enumerate(line(desktop, "rush_hour"), start=1):
        drag(page, action)
        wait_for_turns(page, number)
        expect(page.locator(".turns button .action").last).to_have_text(
            action if number < len(line(desktop, "rush_hour")) else "End"
        )
    expect(page.locator(".ending")).to_have_text("Solved.")


def test_a_person_wins_rush_hour_on_a_phone(phone: Visit) -> None:
    page = begin(phone, "rush_hour", "human")
    for number, action in enumerate(line(phone, "rush_hour"), start=1):
        page.get_by_role("button", name=f"Vehicle {action[0]}").tap()
        page.get_by_role("button", name=action, exact=True).tap()
        wait_for_turns(page, number)
    expect(page.locator(".ending")).to_have_text("Solved.")
    phone.check_width()
    phone.check_accessibility()


def test_a_person_wins_minesweeper_with_the_mouse(desktop: Visit) -> None:
    page = begin(desktop, "minesweeper", "human")
    expect(page.locator(".curve-note")).to_contain_text("hidden until the game is over")
    page.locator("svg.board").click(position=cell(page, 4, 4), button="right")
    expect(page.locator(".board .flag")).to_have_count(1)
    for number, action in enumerate(line(desktop, "minesweeper"), start=2):
        row, col = map(int, action.split()[1:])
        page.locator("svg.board").click(position=cell(page, row, col))
        wait_for_turns(page, number)
    expect(page.locator(".ending")).to_have_text("Solved.")
    expect(page.locator(".curve-note")).to_have_text("0 reveals to go.")
    expect(page.locator(".board .mine")).to_have_count(2)  # the third one carries the flag


def test_a_person_wins_minesweeper_on_a_phone(phone: Visit) -> None:
    page = begin(phone, "minesweeper", "human")
    page.get_by_role("button", name="Flag mode").tap()
    page.locator("svg.board").tap(position=cell(page, 4, 4))
    expect(page.locator(".board .flag")).to_have_count(1)
    page.get_by_role("button", name="Flag mode").tap()
    for number, action in enumerate(line(phone, "minesweeper"), start=2):
        row, col = map(int, action.split()[1:])
        page.locator("svg.board").tap(position=cell(page, row, col))
        wait_for_turns(page, number)
    expect(page.locator(".ending")).to_have_text("Solved.")
    phone.check_width()


def test_minesweeper_is_played_with_keys_alone(desktop: Visit) -> None:
    page = begin(desktop, "minesweeper", "human")
    for key in (
        "ArrowDown",
        "ArrowUp",
        "f",
    ):  # the first one shows the frame, the second goes round the edge
        page.keyboard.press(key)
    expect(page.locator(".turns .action")).to_have_text(["flag 4 0"])
    page.keyboard.press("f")
    wait_for_turns(page, 2)
    page.keyboard.press("Enter")
    expect(page.locator(".turns button:not(.end) .action").last).to_have_text("reveal 4 0")


def test_hints_show_the_chance_of_a_mine(desktop: Visit) -> None:
    page = begin(desktop, "minesweeper", "human")
    expect(page.locator(".heat")).to_have_count(0)
    page.get_by_label("Mine probabilities").check()
    mines = desktop.api("solve", {"game": "minesweeper", "board": MINES})["mines"]
    told = [f"{round(100 * chance)}%" for row in mines for chance in row if chance is not None]
    expect(page.locator(".heat-text")).to_have_text(told)


def test_the_agent_wins_and_every_turn_can_be_looked_at(desktop: Visit) -> None:
    page = begin(desktop, "sokoban", "agent")
    see_the_end(page)
    expect(page.locator(".ending")).to_have_text("Solved.")
    moves = line(desktop, "sokoban")
    wait_for_turns(page, len(moves))
    page.keyboard.press("Home")
    expect(page.locator(".position")).to_have_text(f"Turn 1 of {len(moves)}")
    expect(page.locator(".answer mark.chosen")).to_have_text(f"```{moves[0]}```")
    expect(page.locator(".answer")).to_contain_text("```Up``` no")
    expect(page.locator(".overlay .chip.best").first).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".position")).to_have_text(f"Turn 2 of {len(moves)}")
    _check_marks(page, 1)
    page.get_by_label("Turn", exact=True).fill("0")
    _check_marks(page, 0)
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".ending")).to_have_text("Solved.")
    page.get_by_label("Optimal line").check()
    page.keyboard.press("Home")
    expect(page.locator(".overlay .line .arrow")).to_have_count(len(moves))
    desktop.check_accessibility()


def _check_marks(page: Page, position: int) -> None:
    """List, slider and curve mark the same turn."""
    expect(page.locator(".turns button").nth(position)).to_have_attribute("aria-current", "step")
    expect(page.get_by_label("Turn", exact=True)).to_have_value(str(position))
    expect(page.locator(".curve .point").nth(position)).to_have_class(re.compile("now"))


def test_the_agent_loses_and_the_page_says_by_which_turn(phone: Visit) -> None:
    page = begin(phone, "sokoban", "agent", temperature=1.0)
    see_the_end(page)
    expect(page.locator(".ending")).to_contain_text("no win is left")
    expect(page.locator(".curve path.dead")).to_have_count(1)
    fatal = page.locator(".turns button.dead:not(.end)")
    expect(fatal).to_contain_text("deadlock")
    fatal.tap()
    expect(page.locator(".verdict")).to_contain_text("→ lost")
    phone.check_width()


def test_a_broken_board_is_told_beside_its_field(desktop: Visit) -> None:
    page = desktop.open("#/play/sokoban")
    page.get_by_text("Paste a board instead").click()
    field = page.get_by_label("Board, one line a row")
    field.fill("######\n#P_Q_#\n######")
    expect(page.locator("[data-field=board] .error")).to_contain_text("row 1, column 3")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill(BOARDS["sokoban"])
    expect(page.locator("[data-field=board] .error")).to_be_empty()
    expect(page.locator(".preview svg.board")).to_be_visible()


def test_an_episode_that_is_gone_is_told_in_words(desktop: Visit) -> None:
    page = desktop.open("#/episode/nobody")
    expect(page.get_by_role("alert")).to_contain_text("there is no such episode")


def test_a_broken_stream_is_taken_up_behind_the_last_turn(desktop: Visit) -> None:
    page, asked = desktop.page, []

    def cut(route: Route) -> None:
        """Give the first turn alone, then let everything through."""
        asked.append(route.request.headers.get("last-event-id"))
        if len(asked) > 1:
            route.continue_()
            return
        whole = route.fetch().text()
        route.fulfill(content_type="text/event-stream", body=whole.partition("\n\n")[0] + "\n\n")

    page.route("**/events", cut)
    begin(desktop, "sokoban", "solver", delay_ms=300)
    expect(page.locator(".ending")).to_have_text("Solved.")
    wait_for_turns(page, len(line(desktop, "sokoban")))
    assert asked[1] == str(int(asked[0] or -1) + 1)


def test_the_key_is_asked_for_and_kept(browser: Browser) -> None:
    app = site_app(guarded(key_digests=(digest_of_key("open sesame"),)))
    with served(app) as address, visit(browser, address, **DESKTOP) as to:
        page = to.open("#/play/sokoban")
        dialog = page.get_by_role("dialog")
        for key in ("wrong", "open sesame"):
            dialog.get_by_label("Key").fill(key)
            dialog.get_by_role("button", name="Use this key").click()
            if key == "wrong":
                expect(dialog.locator(".error")).not_to_be_empty()
        expect(page.locator(".preview svg.board")).to_be_visible()
        page.reload()
        expect(page.locator(".preview svg.board")).to_be_visible()
        expect(dialog).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("game", list(BOARDS))
def test_the_start_is_accessible_in_both_schemes(
    browser: Browser, address: str, game: str, scheme: str
) -> None:
    with visit(browser, address, color_scheme=scheme, **DESKTOP) as to:
        page = to.open(f"#/play/{game}?tier=mini&seed=1")
        expect(page.locator(".preview svg.board")).to_be_visible()
        to.check_accessibility()
        description: Locator = page.locator(".preview svg.board desc")
        made = to.api("boards", {"game": game, "tier": "mini", "seed": 1})["board"]
        assert description.text_content() == made["text"]


def test_the_colours_can_be_chosen_and_stay(desktop: Visit) -> None:
    page = desktop.open("#/play/sokoban")
    page.get_by_role("button", name="Dark colours").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 27)"
