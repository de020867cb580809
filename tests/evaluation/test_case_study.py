"""The case study: which puzzles it shows, what it says of every turn, and that text stays text."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.case_study import (
    Cases,
    case_study_page,
    choose_cases,
    write_case_study,
)
from cast_ray.evaluation.tasks import GameTier, evaluation_puzzles
from cast_ray.evaluation.with_players import play_with_player
from cast_ray.games.costs import json_cost
from cast_ray.games.text import FENCE
from cast_ray.games.turn_quality import turn_regrets
from tests.support.figures import figures_in
from tests.support.made_attempts import attempts_at, made_attempt
from tests.support.page import SVG, Element, costs_in, parse_page
from tests.support.rooms import FIXED

HOSTILE = (
    "<script>alert(1)</script>\"' onerror=alert(1) </pre><img src=x onerror=alert(1)> &lt;b&gt;"
)
TIERS = ("sokoban:unseen", "minesweeper:mini", "rush_hour:mini")
MARKS = st.text("01", min_size=1, max_size=4)


@cache
def played(player: str) -> tuple[Attempt, ...]:
    """Real attempts at three puzzles of each game, two at each."""
    config = load_config(None, [])
    found: list[Attempt] = []
    for tier in TIERS:
        which = GameTier.parse(tier)
        found += play_with_player(
            player,
            evaluation_puzzles(which, config, limit=3, seen=set()),
            label=player,
            turn_budget=which.turn_budget,
            attempts=2,
            seed=0,
            deadlock_ends_episode=True,
            on_puzzle=lambda done, total: None,
        )
    return tuple(found)


def chosen(first: dict[str, str], second: dict[str, str], *, limit: int = 20) -> Cases:
    """Cases of outcomes by puzzle, as ``attempts_at`` takes them."""
    return choose_cases(
        attempts_at(first, model="one"), attempts_at(second, model="two"), limit=limit
    )


def html_of(tmp_path: Path, first: list[Attempt], second: list[Attempt], limit: int = 20) -> str:
    path = tmp_path / "new" / "case_study.html"
    write_case_study(path, first, second, limit=limit)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("case_study")
    return html_of(folder, list(played("solver")), list(played("random")), limit=7)


@pytest.fixture(scope="module")
def page(html: str) -> Element:
    return parse_page(html)


# Which puzzles


def test_puzzles_come_by_how_much_the_outcomes_differ() -> None:
    cases = chosen(
        {"same": "11", "little": "1110", "much": "0000", "more": "11"},
        {"same": "11", "little": "1100", "much": "1110", "more": "00"},
    )
    assert [case.first.puzzle_id for case in cases.shown] == ["more", "much", "little", "same"]
    assert (cases.num_first_better, cases.num_equal, cases.num_second_better) == (2, 1, 1)


def test_equal_differences_keep_the_order_of_the_evaluation() -> None:
    cases = chosen({"z": "1", "a": "0", "m": "1"}, {"m": "0", "a": "1", "z": "0"})
    assert [case.first.puzzle_id for case in cases.shown] == ["z", "a", "m"]


def test_only_so_many_are_shown_but_all_are_counted() -> None:
    cases = chosen({"a": "1", "b": "1", "c": "0"}, {"a": "0", "b": "0", "c": "0"}, limit=1)
    assert [case.first.puzzle_id for case in cases.shown] == ["a"]
    assert cases.num_puzzles == 3


def test_games_take_turns_and_puzzles_without_difference_wait_for_all_others() -> None:
    def outcomes(game: str, marks: dict[str, str], model: str) -> list[Attempt]:
        return attempts_at(marks, game=game, model=model)

    first = outcomes("sokoban", {"s0": "1", "s1": "1", "s2": "1"}, "one")
    first += outcomes("rush_hour", {"r0": "1", "r1": "11"}, "one")
    second = outcomes("sokoban", {"s0": "0", "s1": "0", "s2": "0"}, "two")
    second += outcomes("rush_hour", {"r0": "1", "r1": "10"}, "two")
    shown = [case.first.puzzle_id for case in choose_cases(first, second, limit=20).shown]
    assert shown == ["s0", "r1", "s1", "s2", "r0"]


def test_reward_decides_between_puzzles_solved_equally_often() -> None:
    def bought(puzzle_id: str, reward: float, model: str) -> Attempt:
        return made_attempt(model=model, game="webshop", puzzle_id=puzzle_id, reward=reward)

    first = [bought("a", 0.5, "one"), bought("b", 0.2, "one")]
    second = [bought("a", 0.4, "two"), bought("b", 0.9, "two")]
    cases = choose_cases(first, second, limit=20)
    assert [case.first.puzzle_id for case in cases.shown] == ["b", "a"]
    assert (cases.num_first_better, cases.num_second_better) == (1, 1)


def test_where_models_stand_equal_their_first_attempts_are_shown() -> None:
    (case,) = chosen({"p": "01"}, {"p": "01"}).shown
    assert (case.first.attempt, case.second.attempt) == (0, 0)


@FIXED
@given(MARKS, MARKS)
def test_shown_pair_is_the_earliest_of_those_that_differ_most(ours: str, theirs: str) -> None:
    """Against all pairs, one by one."""
    (case,) = chosen({"p": ours}, {"p": theirs}).shown
    lead = ours.count("1") / len(ours) - theirs.count("1") / len(theirs)
    sign = (lead > 0) - (lead < 0)
    pairs = list(product(range(len(ours)), range(len(theirs))))
    most = max(sign * (int(ours[i]) - int(theirs[j])) for i, j in pairs)
    best = [(i, j) for i, j in pairs if sign * (int(ours[i]) - int(theirs[j])) == most]
    assert (case.first.attempt, case.second.attempt) == min(best)


def test_earliest_attempt_is_that_of_the_earliest_run() -> None:
    early, late = (
        attempts_at({"p": marks}, model="one", run=run) for run, marks in enumerate(("01", "10"))
    )
    (case,) = choose_cases([*late, *early], attempts_at({"p": "0"}), limit=1).shown
    assert (case.first.run, case.first.attempt) == (0, 1)
    assert case.solved[0] == (2, 4)


def test_same_id_of_another_tier_or_board_is_another_puzzle() -> None:
    first = [made_attempt(tier="id"), made_attempt(tier="unseen", puzzle="another")]
    second = [made_attempt(tier="mini"), made_attempt(tier="unseen")]
    with pytest.raises(ConfigError, match="both models") as error:
        choose_cases(first, second, limit=20)
    assert "\n" not in str(error.value)


# What is said of an attempt


@pytest.mark.parametrize("player", ["solver", "random"])
def test_turns_have_the_regrets_risks_and_costs_of_the_attempt(player: str) -> None:
    for attempt in played(player):
        turns = shown(attempt)["turns"]
        regrets = turn_regrets(attempt.costs, attempt.effects, game=attempt.game)
        assert [turn["regret"] for turn in turns] == regrets
        assert tuple(turn["excess_risk"] for turn in turns) == attempt.excess_risks
        assert tuple(turn["is_safe"] for turn in turns) == attempt.safe_reveals
        assert [turn["cost_after"] for turn in turns] == list(map(json_cost, attempt.costs[1:]))


def shown(attempt: Attempt) -> Any:  # Any: JSON
    """The first of two equal attempts, as their page holds it."""
    page = parse_page(case_study_page(choose_cases([attempt], [attempt], limit=1)))
    return page.games[0]


def facts(attempt: Attempt) -> dict[str, str]:
    """What the page's table says of an attempt."""
    table = parse_page(case_study_page(choose_cases([attempt], [attempt], limit=1))).one("compared")
    rows = [(row.one("th").text, row.all("td")[0].text) for row in table.one("tbody").all("tr")]
    return {name: figures_in(text) for name, text in rows[2:]}


def test_action_without_effect_is_shown_with_what_the_model_was_told() -> None:
    board = "######\n#P_X_O\n#____#\n######"
    attempt = made_attempt(
        effects=("ineffective", "invalid", "truncated", "changed"),
        states=(board,) * 5,
        answers=("```Up```", "```fly```", "```Up``` and", "```Right```"),
        actions=("Up", "", "", "Right"),
    )
    turns = shown(attempt)["turns"]
    assert turns[0]["feedback"] and turns[1]["feedback"].startswith("Unknown action")
    assert [turn["feedback"] for turn in turns[2:]] == ["", ""]


def test_facts_say_what_was_counted_and_nothing_else() -> None:
    known = made_attempt(costs=(2.0, 2.0, math.inf), price_usd=0.0123, num_retries=2)
    assert facts(known) == {
        "regret per turn": "1.00", "optimal moves %": "0.0", "fatal turn": "2.0",
        "answer tokens": "20", "tokens per turn": "10", "prompt tokens": "100", "seconds": "1.0",
        "retries, total": "2", "US dollars, total": "0.012",
    }  # fmt: skip
    uncounted = made_attempt(answer_tokens=(None, 5), prompt_tokens=None)
    assert facts(uncounted) == {"seconds": "1.0", "retries, total": "0"}


def test_attempt_without_any_answer_is_shown_with_its_reason() -> None:
    attempt = made_attempt(
        effects=(), answers=(), actions=(), end_reason="no_answer", no_answer_reason="time-out"
    )
    assert shown(attempt)["turns"] == []
    page = parse_page(case_study_page(choose_cases([attempt], [attempt], limit=1)))
    assert "time-out" in page.one("compared").text


# The page


def test_page_holds_both_attempts_turn_by_turn_with_their_whole_texts(page: Element) -> None:
    cases = choose_cases(list(played("solver")), list(played("random")), limit=7)
    assert len(page.all("case")) == len(page.one("picker").all("a")) == 7
    attempts = [one for case in cases.shown for one in (case.first, case.second)]
    for game, attempt in zip(page.games, attempts, strict=True):
        turns = game["turns"]
        assert tuple(turn["answer"] for turn in turns) == attempt.answers
        assert tuple(turn["action"] for turn in turns) == attempt.actions
        assert costs_in(game) == list(map(json_cost, attempt.costs))
        assert (game["end_reason"], game["turn_budget"]) == (
            attempt.end_reason, attempt.turn_budget,
        )  # fmt: skip
    outcomes = [one.attributes["class"].split()[1] for one in page.all("outcome")]
    assert outcomes == ["won" if attempt.is_success else "lost" for attempt in attempts]


def test_page_states_the_balance_and_how_many_it_shows(page: Element) -> None:
    text = page.all("chosen")[0].text
    cases = choose_cases(list(played("solver")), list(played("random")), limit=7)
    balance = (cases.num_first_better, cases.num_second_better, cases.num_equal)
    assert figures_in(text) == " ".join(map(str, (9, *balance, 7)))


def test_page_asks_no_host_and_runs_its_own_script_alone(html: str, page: Element) -> None:
    assert "://" not in html.replace(SVG, "")
    script = page.all("script")[-1].parts[0]
    assert isinstance(script, str)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [m.attributes["content"] for m in page.all("meta") if "http-equiv" in m.attributes]
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'"
    )


def test_whatever_a_model_wrote_stays_text(tmp_path: Path) -> None:
    first = made_attempt(
        model=f"one {HOSTILE}", game="webshop", tier=HOSTILE, puzzle_id=HOSTILE,
        answers=(HOSTILE, f"{FENCE}{HOSTILE}{FENCE}{HOSTILE}"), actions=("", HOSTILE),
        effects=("invalid", HOSTILE), states=(HOSTILE,) * 3, end_reason=HOSTILE,
    )  # fmt: skip
    second = replace(first, model=f"two {HOSTILE}")
    page = parse_page(html_of(tmp_path, [first], [second]))
    assert len(page.all("script")) == 2  # the games, and what draws them
    assert page.all("img") == []
    everywhere = page.all("svg") + page.all("pre") + page.all("p") + page.all("a") + page.all("li")
    assert not [e for e in everywhere if any(name.startswith("on") for name in e.attributes)]
    assert [turn["answer"] for turn in page.games[0]["turns"]] == [
        HOSTILE, f"{FENCE}{HOSTILE}{FENCE}{HOSTILE}",
    ]  # fmt: skip
    assert page.one("title").text.startswith(f"one {HOSTILE}")


def test_page_of_a_benchmark_has_texts_and_neither_costs_nor_curve(tmp_path: Path) -> None:
    first = made_attempt(game="webshop", model="one", states=("a page", "b", "c"), reward=0.67)
    second = made_attempt(game="webshop", model="two", states=("a page", "b", "c"))
    page = parse_page(html_of(tmp_path, [first], [second]))
    for game in page.games:
        assert costs_in(game) == [None] * 3
        boards = [game["board"], *(turn["board_after"] for turn in game["turns"])]
        assert [board["text"] for board in boards] == ["a page", "b", "c"]
        assert all(board["is_text"] for board in boards)
    assert "0.67" in page.one("compared").text


def test_same_attempts_make_the_same_page(tmp_path: Path, html: str) -> None:
    again = html_of(tmp_path, list(played("solver")), list(played("random")), limit=7)
    assert again == html
