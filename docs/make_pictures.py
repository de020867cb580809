"""Takes the pictures of docs/page from the recorded runs of ``cast-ray view --demo``.

Usage: python -m docs.make_pictures, from the repository's root; it needs Chromium.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.site import FREE, served, site_app

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "page"
LOST = "#/run/sokoban/step/1/group/1/episode/2"
"""All eight attempts of its group are lost, so the outcome advantage of each is 0."""
DESKTOP, PHONE = (1280, 800), (390, 844)
STILLS = {
    "run.png": (DESKTOP, "light", "#/run/rush_hour"),
    "lost_by_deadlock.png": ((1280, 900), "light", f"{LOST}?turn=8"),
    "start.png": (DESKTOP, "light", "#/play/sokoban?tier=id&seed=7"),
    "minesweeper_dark.png": (DESKTOP, "dark", "#/run/minesweeper/step/12/group/2/episode/1?turn=5"),
    "rush_hour_phone.png": (PHONE, "light", "#/run/rush_hour/step/12/group/0/episode/0?turn=2"),
    "compare_phone.png": (PHONE, "dark", "#/compare/sokoban/rush_hour"),
}
FRAME_MS, LAST_MS = 1300, 4000


def opened(browser: Browser, address: str, size: tuple[int, int], scheme: str) -> Page:
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    return page


def animate(page: Page, path: Path) -> None:
    """Write one frame per turn of the game on a page."""
    page.locator(".board-card").scroll_into_view_if_needed()
    frames = []
    num_turns = page.locator(".turns button").count()
    for _ in range(num_turns):
        page.wait_for_timeout(600)
        shot = Image.open(io.BytesIO(page.screenshot()))
        frames.append(shot.quantize(colors=64))
        page.keyboard.press("ArrowRight")
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0)


def main() -> None:
    site = site_app(replace(FREE, runs=ROOT / "serve" / "demo"))
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for name, (size, scheme, where) in STILLS.items():
            opened(browser, f"{address}/{where}", size, scheme).screenshot(path=PAGES / name)
        game = opened(browser, f"{address}/{LOST}?turn=1", (1280, 900), "light")
        animate(game, PAGES / "lost_game.gif")


if __name__ == "__main__":
    main()
