"""The report of Minesweeper and Rush Hour runs: their boards, their words, their credit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pytest

from cast_ray.config.train import AdvantageConfig
from cast_ray.games.plugins import forget_plugins
from cast_ray.games.wording import GameWording
from cast_ray.rollout.trajectory import Trajectory
from cast_ray.runs.metrics import METRICS, write_metrics
from cast_ray.runs.report import write_report
from cast_ray.runs.report.episode import player_data, shown_boards, shown_episode
from cast_ray.runs.report.wording import words_of
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.statistics import Success
from solver_actors.oracle import Oracle
from tests.support import installed
from tests.support.figures import figures_in
from tests.support.made_up_run import (
    ALPHA,
    new_run,
    play,
    scored,
    scripted,
    step_row,
    write_evaluation,
    write_step,
)
from tests.support.page import Element, costs_in, credit_in, game_of, parse_page

Rescue = Literal["cost", "zero"]
GUESSES = "....+\n+.+21\n++210\n22100\n00000"
"""K is infinite: the peek-free solver hits a mine."""
HIT = ["```flag 0 4```", "```flag 0 3```", "```reveal 0 3```", "```reveal 1 2```"]
RESCUE = [
    "```reveal 0 0```",
    "```flag 0 1```",
    "I am lost.",
    "```flag 0 1```",
    "```reveal 0 1```",
    "```reveal 0 2```",
    "```reveal 0 3```",
    "```reveal 1 1```",
]
CAR_PARK = "..C.....C.B.AA..B.....B.x..DD......."
"""N = 3: D left, B down, A out."""
STUCK = ["```A+4```", "```D+1```", "```D-1```", "```A+2```"] * 2
WAY_OUT = [
    "```A+3```",
    "```D-2```",
    "```B+2```",
    "```C+1```",
    "```C-1```",
    "```Q+1```",
    "```A+4```",
]
RATE = Success(success=0.5, low=0.0, high=1.0, n=2)
GAMES = {"minesweeper": (GUESSES, HIT, RESCUE), "rush_hour": (CAR_PARK, STUCK, WAY_OUT)}


def write_run(path: Path, game: str, oracle: Oracle, *, rescue: Rescue = "cost") -> RunDirectory:
    """Write a finished run of one step; the lost game comes before training, the won one after."""
    board, lost, won = GAMES[game]
    advantage = AdvantageConfig(alpha=ALPHA, rescue=rescue)
    run = new_run(path, game=game, steps=1, advantage=advantage)

    def attempts(*answers: list[str]) -> list[Trajectory]:
        return [
            play(
                board,
                scripted(given),
                turn_budget=8,
                oracle=oracle,
                game_name=game,
                episode=episode,
            )
            for episode, given in enumerate(answers)
        ]

    write_evaluation(run, "before", scored(attempts(lost, lost), oracle))
    write_evaluation(run, "after", scored(attempts(won, lost), oracle))
    write_step(run, 1, scored(attempts(lost, won), oracle))
    write_metrics(run.metrics, [step_row(1, success=0.5, lost_fraction=0.5, num_trajectories=2)])
    summary = {"before": asdict(RATE), "after": asdict(RATE), "seconds": 9.0, "seed": 0}
    run.write_summary({**summary, "game": game, "tier": "mini", "steps": 1})
    return run


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Element]:
    oracle = Oracle(max_bytes=2**24)

    def page(game: str, **settings: Rescue) -> Element:
        run = write_run(tmp_path_factory.mktemp(game) / "run", game, oracle, **settings)
        return parse_page(write_report(run).read_text(encoding="utf-8"))

    return page


def board(game: str, text: str) -> Any:
    (found,) = shown_boards(game, [text])
    return found


def test_minesweeper_board_shows_what_the_player_sees_and_the_hidden_mines() -> None:
    found = board("minesweeper", GUESSES.replace("+", "F", 1))
    assert found["rows"] == ("....F", "...21", "..210", "22100", "00000")
    assert found["mines"] == ((0, 4), (1, 0), (1, 2), (2, 0), (2, 1))


def test_rush_hour_board_in_lines_and_with_o_for_empty_is_the_same_picture() -> None:
    rows = [CAR_PARK[start : start + 6].replace(".", "o") for start in range(0, 36, 6)]
    assert board("rush_hour", "\n".join(rows)) == board("rush_hour", CAR_PARK)


@pytest.mark.parametrize(
    ("game", "text"),
    [
        ("minesweeper", ""),
        ("minesweeper", ".+\n1"),
        ("minesweeper", ".9"),
        ("rush_hour", "A.A"),
        ("rush_hour", CAR_PARK.replace("A", "E")),
        ("sokoban", "##\n#"),
        ("sokoban", "#P?#"),
        ("chess", "<b>K</b>\n& q"),
        ("webshop", "a page"),
    ],
)
def test_text_that_is_no_board_of_the_game_is_shown_as_text(game: str, text: str) -> None:
    found = board(game, text)
    assert (found["is_text"], found["rows"], found["text"]) == (True, text.splitlines(), text)


def test_one_broken_board_makes_all_of_a_game_text() -> None:
    assert all(one["is_text"] for one in shown_boards("sokoban", ["#####\n#PXO#\n#####", "#P?#"]))


@pytest.fixture
def lights_out(tmp_path: Path) -> Iterator[None]:
    """Install a game that the report cannot draw."""
    with pytest.MonkeyPatch.context() as patch:
        installed.install(installed.LIGHTS_OUT, tmp_path)
        patch.syspath_prepend(str(tmp_path))
        forget_plugins()
        yield
    forget_plugins()


@pytest.mark.usefixtures("lights_out")
def test_added_game_is_shown_as_rows_and_with_its_own_words() -> None:
    assert board("lights_out", "o.\n.o")["picture"] is None
    assert board("lights_out", "?")["is_text"]
    record = {
        "game": "lights_out", "tier": "mini", "seed": 0, "turn_budget": 3, "end_reason": "lost",
        "states": ["o.", "oo"], "answers": ["```press 9 9```"], "actions": [""],
        "effects": ["invalid"],
    }  # fmt: skip
    data = player_data([shown_episode(record, [1.0, math.nan])])
    words = words_of("lights_out")
    facts = data["facts"]["lights_out"]
    assert (facts["letter"], facts["unit"], facts["hides"]) == (words.letter, words.unit, False)
    (turn,) = data["episodes"][0]["turns"]
    assert turn["feedback"] and turn["cost_after"] == "unknown"


def test_minesweeper_page_says_solver_loses_and_never_dead(pages: Callable[..., Element]) -> None:
    page = pages("minesweeper")
    assert costs_in(game_of(page, "before")) == ["dead"] * 5  # as JSON; the page has the word
    assert words_of("minesweeper").infinite in page.one("explain").text.lower()
    assert "dead" not in page.one("main").text.lower().replace("deadlock_ends_episode", "")


def test_minesweeper_page_counts_k_and_credits_the_rescue(pages: Callable[..., Element]) -> None:
    page = pages("minesweeper")
    assert costs_in(game_of(page, "after")) == ["dead", 4, 5, 5, 4, 3, 2, 1, 0]
    assert credit_in(game_of(page, "after")) == [4, -1, 0, 1, 1, 1, 1, 1]
    assert words_of("minesweeper").from_infinite in page.one("explain").text


def test_rescue_is_credited_as_the_run_did(pages: Callable[..., Element]) -> None:
    page = pages("minesweeper", rescue="zero")
    assert credit_in(game_of(page, "after"))[0] == 0
    assert words_of("minesweeper").from_infinite not in page.one("explain").text


def test_mine_hit_is_said_where_an_episode_ends(pages: Callable[..., Element]) -> None:
    page, lost = pages("minesweeper"), words_of("minesweeper").lost
    assert game_of(page, "before")["end_reason"] == "lost"
    endings = {ending.one("reason").text: figures_in(ending.text) for ending in page.all("ending")}
    assert endings[lost] == "100.0% 50.0%"


def test_rush_hour_page_shows_slides_and_no_way_to_lose(pages: Callable[..., Element]) -> None:
    page = pages("rush_hour")
    assert costs_in(game_of(page, "after")) == [3, 3, 2, 1, 2, 1, 1, 0]
    assert credit_in(game_of(page, "after")) == [0, 1, 1, -1, 1, 0, 1]
    assert words_of("rush_hour").one_away in page.one("explain").text
    assert GameWording().to_infinite not in page.one("explain").text
    assert METRICS["lost_fraction"].label not in page.text


@pytest.mark.parametrize("game", list(GAMES))
def test_every_turn_has_a_board_to_draw(game: str, pages: Callable[..., Element]) -> None:
    (before, after), (_, lost, won) = pages(game).games, GAMES[game]
    assert (len(before["turns"]), len(after["turns"])) == (len(lost[:8]), len(won[:8]))
    assert not any("is_text" in turn["board"] for one in (before, after) for turn in one["turns"])
