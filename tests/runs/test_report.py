"""The report page: real games of a scripted policy, and what the page says of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.errors import RunDirectoryError, TrajectoryError
from cast_ray.rollout.trajectory import SCORED_SCHEMA, Trajectory, to_rollout_batch, with_costs
from cast_ray.runs.metrics import write_metrics
from cast_ray.runs.report import write_report
from cast_ray.runs.run_directory import RunDirectory, write_table
from cast_ray.statistics import Success
from solver_actors.oracle import Oracle
from tests.support.made_up_run import (
    new_run,
    play,
    scored,
    scripted,
    step_row,
    write_evaluation,
    write_step,
)
from tests.support.page import Element, parse_page

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
    return write_finished(tmp_path_factory.mktemp("runs") / "finished", oracle)


@pytest.fixture(scope="module")
def page(finished: RunDirectory) -> Element:
    return page_of(finished)


def turns_of(page: Element, name: str) -> list[Element]:
    (column,) = [game for game in page.all("turns") if game.attributes["data-when"] == name]
    return column.all("turn")


def costs(turns: list[Element]) -> list[str]:
    return [turn.one("n").text for turn in turns]


def badges(turns: list[Element]) -> list[str]:
    return [turn.one("credit").text for turn in turns if turn.all("credit")]


def test_page_loads_nothing_from_outside(finished: RunDirectory, page: Element) -> None:
    html = write_report(finished).read_text(encoding="utf-8")
    addresses = [element.attributes["href"] for element in page.all("a") + page.all("use")]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    assert not page.all("link") + page.all("img") + page.all("iframe")
    assert "://" not in html
    assert "src=" not in html
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
    assert facts == ["2 steps", "cast", "seed 7", "8 min 43 s", "4 training episodes", "α = 0.5"]
    assert not page.all("notice")


def test_success_before_and_after_is_the_summary_s(page: Element) -> None:
    verdict = page.one("verdict").text
    assert verdict.startswith("25%→75%")
    assert "solved 25.0% (95% interval 0.0% to 50.0%)" in verdict
    assert "after it 75.0% (95% interval 50.0% to 100.0%) of 4 attempts" in verdict
    # The corridor was solved once in two both times, the room never and then always.
    assert "a change of +50.0 points" in verdict
    assert "1 more often 1 equally often" in page.one("boards").text


def test_reasons_to_end_are_counted_before_and_after(page: Element) -> None:
    endings = [ending.text for ending in page.all("ending")]
    assert endings == [
        "solved before25.0% after75.0%",
        "out of turns before50.0% after25.0%",
        "deadlock before25.0% after0.0%",
    ]


def test_the_board_lost_before_and_solved_after_is_shown_and_said_to_be_chosen(
    page: Element,
) -> None:
    reason = page.one("chosen").text
    assert "Chosen for its contrast" in reason
    assert "lost in 2 of 2 attempts before training and solved in 2 of 2 after it" in reason
    assert "2 of the 2 held-out boards have such a pair" in reason


def test_game_before_shows_each_n_and_advantage_and_ends_dead(page: Element) -> None:
    turns = turns_of(page, "before")
    assert costs(turns) == ["N = 2", "N = 3", "N = 4", "dead"]
    assert badges(turns) == ["−1", "−1", "−4"]
    assert turns[-1].one("outcome").text == "deadlock"
    assert "dead" in turns[-1].one("picture").attributes["class"]
    assert "dead" not in turns[-2].one("picture").attributes["class"]


def test_game_after_shows_each_n_and_advantage_and_ends_solved(page: Element) -> None:
    turns = turns_of(page, "after")
    assert costs(turns) == ["N = 2", "N = 3", "N = 3", "N = 3", "N = 2", "N = 1", "N = 0"]
    assert badges(turns) == ["−1", "0", "0", "+1", "+1", "+1"]
    assert turns[-1].one("outcome").text == "solved"


def test_each_turn_shows_answer_action_and_effect(page: Element) -> None:
    turns = turns_of(page, "after")
    assert [turn.one("answer").text for turn in turns[:-1]] == DETOUR
    assert [turn.one("did").text for turn in turns[:-1]] == [
        "Left changed",
        "Left ineffective",
        "no action invalid",
        "Right changed",
        "Right changed",
        "Right changed",
    ]


def test_each_turn_has_its_own_board(page: Element) -> None:
    boards = [turn.one("board").attributes["aria-label"] for turn in turns_of(page, "before")]
    assert boards == [
        "Board ####### / #_____# / #_PX_O# / #_____# / #######",
        "Board ####### / #_____# / #__X_O# / #_P___# / #######",
        "Board ####### / #_____# / #__X_O# / #__P__# / #######",
        "Board ####### / #__X__# / #__P_O# / #_____# / #######",
    ]


def test_text_of_the_model_is_never_markup(finished: RunDirectory, page: Element) -> None:
    html = write_report(finished).read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert len(page.all("script")) == 1
    assert ATTACK in [answer.text for answer in page.all("answer")]


def test_curves_hold_the_figures_of_the_steps(page: Element) -> None:
    hints = [hint.text for hint in page.all("title")]
    assert "training, step 1: 50%" in hints
    assert "training, step 2: 62%" in hints
    assert [hint for hint in hints if hint.startswith("validation")] == ["validation, step 2: 38%"]
    assert "step 1, generation: 3 s" in hints
    assert "step 1, mixed: 1" in hints
    assert "step 2, all solved: 1" in hints


def test_unknown_costs_are_shown_as_unknown_and_a_turn_without_effect_still_earns_nothing(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = new_run(tmp_path / "run")
    played = attempts(oracle, CORRIDOR, ["```Right```", "```Up```", "```Right```", "```Right```"])
    batch = with_costs(to_rollout_batch(played), np.array([3.0, np.nan, np.nan, 1.0, 0.0]))
    write_evaluation(run, "before", pa.Table.from_batches([batch], schema=SCORED_SCHEMA))
    turns = turns_of(page_of(run), "before")
    assert costs(turns) == ["N = 3", "N = unknown", "N = unknown", "N = 1", "N = 0"]
    assert badges(turns) == ["unknown", "0", "unknown", "+1"]


def test_without_a_board_that_turned_the_first_is_shown_and_said_to_be(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = new_run(tmp_path / "run")
    write_evaluation(run, "before", scored(attempts(oracle, CORRIDOR, WALK), oracle))
    write_evaluation(run, "after", scored(attempts(oracle, CORRIDOR, IDLE), oracle))
    page = page_of(run)
    assert "No board was lost before training and solved after it" in page.one("chosen").text
    assert "chance alone" not in page.one("verdict").text
    assert "the policy got worse" in page.one("verdict").text


def test_unfinished_run_says_so_and_shows_what_there_is(tmp_path: Path, oracle: Oracle) -> None:
    run = new_run(tmp_path / "run", steps=12)
    write_evaluation(run, "before", scored(attempts(oracle, CORRIDOR, WALK, IDLE), oracle))
    write_metrics(run.metrics, [step_row(1, success=0.5, seconds_total=9.0)])
    page = page_of(run)
    assert page.one("notice").text.startswith("Not finished. 1 step of 12 so far; the held-out")
    assert "9.0 s of steps so far" in page.one("facts").text
    assert page.one("verdict").text.startswith("50% Before training the policy solved 50.0%")
    assert [game.attributes["data-when"] for game in page.all("turns")] == ["before"]


def test_run_without_a_step_or_game_is_a_page_too(tmp_path: Path) -> None:
    page = page_of(new_run(tmp_path / "run"))
    assert page.one("notice").text.startswith("Not finished. No step has been trained yet")
    assert [note.text for note in page.all("empty")] == [
        "The held-out boards have not been played yet.",
        "No step has been trained yet.",
    ]


def test_run_that_was_resumed_with_more_steps_is_not_finished(
    tmp_path: Path, oracle: Oracle
) -> None:
    run = write_finished(tmp_path / "run", oracle)
    run.config.write_text(run.config.read_text().replace("\nsteps: 2\n", "\nsteps: 5\n"))
    assert page_of(run).one("notice").text.startswith("Not finished. 2 steps of 5 so far. Go on")


def test_figures_that_are_not_finite_do_not_break_the_page(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    write_metrics(run.metrics, [step_row(1, loss=float("nan"), grad_norm=float("inf"))])
    assert "No value is known." in page_of(run).text


def test_report_leaves_no_half_written_file(finished: RunDirectory) -> None:
    write_report(finished)
    assert not list(finished.path.glob("*.partial"))


def test_broken_evaluation_is_named(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    (run.evaluations / "before.parquet").write_bytes(b"no parquet")
    with pytest.raises(RunDirectoryError, match=r"before\.parquet"):
        write_report(run)


def test_evaluation_without_costs_is_refused(tmp_path: Path, oracle: Oracle) -> None:
    run = new_run(tmp_path / "run")
    batch = to_rollout_batch(attempts(oracle, CORRIDOR, WALK))
    write_table(run.evaluations / "before.parquet", pa.Table.from_batches([batch]))
    with pytest.raises(TrajectoryError, match=r"missing.*cost_to_go"):
        write_report(run)


def test_broken_summary_is_named(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.summary.write_text("{")
    with pytest.raises(RunDirectoryError, match=r"summary\.json.*JSON"):
        write_report(run)


def test_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
        write_report(RunDirectory(tmp_path))
