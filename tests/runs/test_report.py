"""The report page: real games of a scripted policy, and what the page says of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.errors import DamagedFileError, RunDirectoryError, TrajectoryError
from cast_ray.parquet import write_table
from cast_ray.rollout.trajectory import SCORED_SCHEMA, Trajectory, to_rollout_batch, with_costs
from cast_ray.runs.metrics import write_metrics
from cast_ray.runs.report import write_report
from cast_ray.runs.report.wording import END_REASONS
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.statistics import Success
from solver_actors.oracle import Oracle
from tests.support.figures import figures_in
from tests.support.made_up_run import (
    new_run,
    play,
    scored,
    scripted,
    step_row,
    write_evaluation,
    write_step,
)
from tests.support.odd_names import ODD_NAME
from tests.support.page import SVG, Element, costs_in, credit_in, game_of, parse_page
from tests.support.refusals import refused

ROOM = "#######\n#_____#\n#_PX_O#\n#_____#\n#######"
"""N = 2: two pushes to the right."""
CORRIDOR = "_P_X_O"
"""N = 3."""
ATTACK = "<script>alert('x')</script>"
DEADLOCK = ["```Down```", "```Right```", "```Up```"]
"""Walks below the box of ROOM and pushes it to the wall, where no target is."""
DETOUR = ["```Left```", "```Left```", ATTACK, "```Right```", "```Right```", "```4```"]
"""Away, into the wall, nonsense, back, push, push: ROOM is solved."""
IDLE = ["```Up```"] * 6
WALK = ["```Right```"] * 3
"""Solves CORRIDOR."""
BEFORE = Success(success=0.25, low=0.0, high=0.5, n=4)
AFTER = Success(success=0.75, low=0.5, high=1.0, n=4)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(max_bytes=2**24)


def attempts(oracle: Oracle, board: str, *answers: list[str]) -> list[Trajectory]:
    return [
        play(board, scripted(given), turn_budget=6, oracle=oracle, episode=episode)
        for episode, given in enumerate(answers)
    ]


def write_finished(path: Path, oracle: Oracle) -> RunDirectory:
    """Write a run of two steps that has come to its end."""
    run = new_run(path, steps=2, seed=7)
    before = attempts(oracle, CORRIDOR, WALK, IDLE) + attempts(oracle, ROOM, DEADLOCK, IDLE)
    after = attempts(oracle, CORRIDOR, IDLE, WALK) + attempts(oracle, ROOM, DETOUR, DETOUR)
    write_evaluation(run, "before", scored(before, oracle))
    write_evaluation(run, "after", scored(after, oracle))
    write_step(run, 1, scored(attempts(oracle, ROOM, DEADLOCK, DETOUR), oracle))
    write_step(run, 2, scored(attempts(oracle, ROOM, DETOUR, DETOUR), oracle))
    rows = [
        step_row(1, success=0.5, num_trajectories=2, seconds_total=4.0, seconds_generation=3.0),
        step_row(2, success=0.625, validation_success=0.375, num_trajectories=2, seconds_total=4.0),
    ]
    write_metrics(run.metrics, rows)
    summary = {"before": asdict(BEFORE), "after": asdict(AFTER), "seconds": 523.0, "seed": 7}
    run.write_summary({**summary, "game": "sokoban", "tier": "mini", "steps": 2})
    return run


def page_of(run: RunDirectory) -> Element:
    return parse_page(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> RunDirectory:
    return write_finished(tmp_path_factory.mktemp("runs") / ODD_NAME, oracle)


@pytest.fixture(scope="module")
def page(finished: RunDirectory) -> Element:
    return page_of(finished)


def data_of(page: Element) -> Any:  # Any: JSON
    (text,) = [one.text for one in page.all("script") if one.attributes.get("id") == "run-data"]
    return json.loads(text)


def test_page_loads_nothing_from_outside(finished: RunDirectory, page: Element) -> None:
    html = write_report(finished).read_text(encoding="utf-8")
    addresses = [element.attributes["href"] for element in page.all("a") + page.all("use")]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    assert not page.all("link") + page.all("img") + page.all("iframe")
    assert "://" not in html.replace(SVG, "")
    assert not [one for one in page.all("script") if "src" in one.attributes]
    assert "@import" not in html
    assert "url(" not in html


def test_every_address_inside_the_page_exists(page: Element) -> None:
    named = {
        element.attributes.get("id") for kind in ("section", "g") for element in page.all(kind)
    }
    wanted = {e.attributes["href"].removeprefix("#") for e in page.all("a") + page.all("use")}
    assert wanted <= named


def test_headline_tells_game_tier_steps_seed_and_time(page: Element) -> None:
    assert page.one("h1").text == "Sokoban mini"
    facts = [fact.text for fact in page.one("facts").all("li")]
    assert [figures_in(fact) for fact in facts] == ["2", "", "7", "8 43", "4", "0.5"]
    assert facts[1] == "cast"
    assert not page.all("notice")


def test_success_before_and_after_is_the_summary_s(page: Element) -> None:
    # The corridor was solved once in two both times, the room never and then always.
    assert figures_in(page.one("gain").text) == (
        "25% 75% 25.0% 95% 0.0% 50.0% 75.0% 95% 50.0% 100.0% 4 +50.0 95% 0.0 +100.0"
    )
    boards = [
        (part.attributes["class"], part.one("b").text) for part in page.one("strip").all("span")
    ]
    assert boards == [("better", "1"), ("same", "1")]


def test_reasons_to_end_are_counted_before_and_after(page: Element) -> None:
    endings = {ending.one("reason").text: figures_in(ending.text) for ending in page.all("ending")}
    reasons = {"solved": "25.0% 75.0%", "turn_budget": "50.0% 25.0%", "deadlock": "25.0% 0.0%"}
    assert endings == {END_REASONS[reason]: shares for reason, shares in reasons.items()}


def test_the_board_lost_before_and_solved_after_is_shown_and_said_to_be_chosen(
    page: Element,
) -> None:
    # Lost in 2 of 2 attempts, then solved in 2 of 2; the same goes for 2 of 2 boards.
    assert figures_in(page.one("chosen").text) == "2 2 2 2 2 2"


def test_game_before_has_each_n_and_advantage_and_ends_dead(page: Element) -> None:
    game = game_of(page, "before")
    assert costs_in(game) == [2, 3, 4, "dead"]
    assert credit_in(game) == [-1, -1, -4]
    assert game["end_reason"] == "deadlock"


def test_game_after_has_each_n_and_advantage_and_ends_solved(page: Element) -> None:
    game = game_of(page, "after")
    assert costs_in(game) == [2, 3, 3, 3, 2, 1, 0]
    assert credit_in(game) == [-1, 0, 0, 1, 1, 1]
    assert [turn["regret"] for turn in game["turns"]] == [2, None, None, 0, 0, 0]
    assert game["end_reason"] == "solved"


def test_each_turn_has_answer_action_effect_and_what_the_rules_said(page: Element) -> None:
    turns = game_of(page, "after")["turns"]
    assert [turn["answer"] for turn in turns] == DETOUR
    assert [(turn["action"], turn["effect"]) for turn in turns] == [
        ("Left", "changed"),
        ("Left", "ineffective"),
        ("", "invalid"),
        ("Right", "changed"),
        ("Right", "changed"),
        ("Right", "changed"),
    ]
    assert [bool(turn["feedback"]) for turn in turns] == [False, True, True, False, False, False]


def test_each_turn_has_its_own_board(page: Element) -> None:
    game = game_of(page, "before")
    rows = [turn["board"]["rows"][1:-1] for turn in game["turns"]]
    assert [*rows, game["board_now"]["rows"][1:-1]] == [
        ["#_____#", "#_PX_O#", "#_____#"],
        ["#_____#", "#__X_O#", "#_P___#"],
        ["#_____#", "#__X_O#", "#__P__#"],
        ["#__X__#", "#__P_O#", "#_____#"],
    ]


def test_text_of_the_model_is_never_markup(finished: RunDirectory, page: Element) -> None:
    html = write_report(finished).read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert len(page.all("script")) == 3  # games, figures, and what draws them
    assert ATTACK in [turn["answer"] for turn in game_of(page, "after")["turns"]]


def test_curves_hold_the_figures_of_the_steps(page: Element) -> None:
    data = data_of(page)
    assert data["columns"]["success"] == [0.5, 0.625]
    assert data["columns"]["validation_success"] == [None, 0.375]
    assert data["time"]["generation"][0] == 3.0
    assert [(one["mixed"], one["all_solved"]) for one in data["groups"]] == [(1, 0), (0, 1)]
    assert data["metrics"]["success"]["unit"] == "share"


def test_the_run_without_credit_from_the_same_start_is_shown_beside(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = write_finished(tmp_path / "run", oracle)
    assert "outcome_alone" not in data_of(page_of(run))["columns"]
    other = write_finished(run.outcome_alone, oracle)
    rows = [step_row(step, success=0.1, validation_success=step / 8) for step in (2, 3)]
    write_metrics(other.metrics, rows)
    summary = other.read_summary()
    other.write_summary(summary | {"after": asdict(replace(AFTER, success=0.375))})
    page = page_of(run)
    assert data_of(page)["columns"]["outcome_alone"] == [None, 0.25]  # steps 1 and 2 of this run
    assert "without the solver’s credit: 37.5%" in " ".join(page.one("gain").text.split())


def test_unknown_costs_are_shown_as_unknown_and_a_turn_without_effect_still_earns_nothing(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = new_run(tmp_path / "run")
    played = attempts(oracle, CORRIDOR, ["```Right```", "```Up```", "```Right```", "```Right```"])
    batch = with_costs(to_rollout_batch(played), np.array([3.0, np.nan, np.nan, 1.0, 0.0]))
    write_evaluation(run, "before", pa.Table.from_batches([batch], schema=SCORED_SCHEMA))
    game = game_of(page_of(run), "before")
    assert costs_in(game) == [3, "unknown", "unknown", 1, 0]
    assert credit_in(game) == [None, 0, None, 1]


def test_without_a_board_that_turned_the_first_is_shown_and_said_to_be(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = new_run(tmp_path / "run")
    write_evaluation(run, "before", scored(attempts(oracle, CORRIDOR, WALK), oracle))
    write_evaluation(run, "after", scored(attempts(oracle, CORRIDOR, IDLE), oracle))
    page = page_of(run)
    assert [game["end_reason"] for game in page.games] == ["solved", "turn_budget"]
    assert figures_in(page.one("chosen").text) == ""
    assert "−100.0" in page.one("gain").text and "worse" in page.one("gain").text


def test_unfinished_run_says_so_and_shows_what_there_is(tmp_path: Path, oracle: Oracle) -> None:
    run = new_run(tmp_path / "run", steps=12)
    write_evaluation(run, "before", scored(attempts(oracle, CORRIDOR, WALK, IDLE), oracle))
    write_metrics(run.metrics, [step_row(1, success=0.5, seconds_total=9.0)])
    page = page_of(run)
    assert figures_in(page.one("notice").text) == "1 12"
    assert page.one("notice").one("code").text == "cast-ray train --resume"
    assert "9.0 s" in page.one("facts").text
    assert figures_in(page.one("gain").text) == "50% 50.0% 95% 50.0% 50.0% 2"
    assert [title.text for title in page.one("duel").all("h3")] == ["before training"]
    assert len(page.games) == 1


def test_run_without_a_step_or_game_is_a_page_too(tmp_path: Path) -> None:
    page = page_of(new_run(tmp_path / "run"))
    assert page.one("notice").one("code").text == "cast-ray train --resume"
    without = [section for section in page.all("section") if section.all("empty")]
    assert [section.attributes["id"] for section in without] == ["held-out", "learning"]


def test_run_that_was_resumed_with_more_steps_is_not_finished(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = write_finished(tmp_path / "run", oracle)
    run.config.write_text(run.config.read_text().replace("\nsteps: 2\n", "\nsteps: 5\n"))
    assert figures_in(page_of(run).one("notice").text) == "2 5"


def test_figures_that_are_not_finite_do_not_break_the_page(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    write_metrics(run.metrics, [step_row(1, loss=float("nan"), grad_norm=float("inf"))])
    columns = data_of(page_of(run))["columns"]
    assert (columns["loss"], columns["grad_norm"]) == ([None], ["infinite"])


def test_report_leaves_no_half_written_file(finished: RunDirectory) -> None:
    write_report(finished)
    assert not list(finished.path.glob("*.partial"))


def test_broken_evaluation_is_named(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    (run.evaluations / "before.parquet").write_bytes(b"no parquet")
    with refused(DamagedFileError, "before.parquet"):
        write_report(run)


def test_evaluation_without_costs_is_refused(tmp_path: Path, oracle: Oracle) -> None:
    run = new_run(tmp_path / "run")
    batch = to_rollout_batch(attempts(oracle, CORRIDOR, WALK))
    write_table(run.evaluations / "before.parquet", pa.Table.from_batches([batch]))
    with refused(TrajectoryError, "cost_to_go"):
        write_report(run)


def test_broken_summary_is_named(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.summary.write_text("{")
    with refused(DamagedFileError, "summary.json", "restore it"):
        write_report(run)


def test_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with refused(RunDirectoryError, "config.yaml"):
        write_report(RunDirectory(tmp_path))
