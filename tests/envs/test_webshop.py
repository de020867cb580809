"""WebShop as it is played: pages, clicks, purchases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.envs.webshop.benchmark import Webshop, goal_id
from cast_ray.envs.webshop.goals import Goal
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle
from tests.support.made_shop import CLOCK, MUG, RUG, SOFA, TABLE, lamp, write_shop

SOFA_TRIP = ["search[corner sofa]", f"click[{SOFA}]", "click[dark red]", "click[3 seats]"]


@pytest.fixture(autouse=True, scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("webshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("WEBSHOP_DATA", str(write_shop(folder / "data")))
        yield folder


def puzzle_of(asin: str, tier: str = "test") -> Puzzle:
    return next(p for p in Webshop().puzzles(tier) if json.loads(p.board)["asin"] == asin)


def trip(asin: str, *, turn_budget: int = 30) -> Environment:
    """Return an episode that has begun."""
    environment = Webshop().environment(puzzle_of(asin).board, turn_budget=turn_budget)
    environment.start()
    return environment


def play(environment: Environment, actions: list[str]) -> EnvironmentTurn:
    """Carry out actions, all of which must do something but the last; return the last turn."""
    *first, last = actions
    for action in first:
        assert environment.step(f"I think.\n```{action}```").effect is Effect.CHANGED, action
    return environment.step(f"```\n{last}\n```")


# Puzzles


def test_puzzles_have_unknown_cost_and_names_of_their_own() -> None:
    puzzles = Webshop().puzzles("test")
    assert [json.loads(puzzle.board)["asin"] for puzzle in puzzles] == [
        MUG,
        SOFA,
        RUG,
        CLOCK,
        TABLE,
    ]
    assert {(p.game, p.tier, p.cost_to_go, p.cost_status, p.seed) for p in puzzles} == {
        ("webshop", "test", None, "unknown", 0)
    }
    assert len({puzzle.puzzle_id for puzzle in puzzles}) == 5
    assert all(len(puzzle.puzzle_id) == 16 for puzzle in puzzles)
    assert puzzles[0].puzzle_id == "de59603655a1ab2d"


def test_tiers_have_the_turns_of_the_paper() -> None:
    budgets = {name: tier.turn_budget for name, tier in Webshop.tiers.items()}
    assert budgets == {"test": 30, "validation": 30, "train": 30, "synthetic-test": 30}
    with pytest.raises(ConfigError, match="synthetic-test"):
        Webshop().puzzles("id")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place": 99}, "human.*99"),
        ({"place": -1}, "'place'.*number"),
        ({"goal": "made up"}, "made up.*1"),
        ({"asin": MUG}, "data"),
        ({"instruction": "buy"}, "data"),
        ({"instruction": 7}, "'instruction'.*text"),
    ],
)
def test_a_board_of_other_data_is_refused(change: dict[str, object], message: str) -> None:
    board = json.dumps(json.loads(puzzle_of(SOFA).board) | change)
    with pytest.raises(PuzzleError, match=message):
        Webshop().environment(board, turn_budget=30)


@pytest.mark.parametrize("board", ["", "sofa", "[]", "{}", '{"place": 1}'])
def test_a_board_that_names_no_goal_is_refused(board: str) -> None:
    with pytest.raises(PuzzleError, match="board of a webshop puzzle"):
        Webshop().environment(board, turn_budget=30)


# Pages


def test_first_message_has_instruction_page_and_steps_and_is_short() -> None:
    environment = Webshop().environment(puzzle_of(SOFA).board, turn_budget=30)
    message = environment.start()
    assert message == (
        "Instruction: get me a dark red sofa for three with a washable cover, and price lower than "
        "930.00 dollars\n"
        "Page: search\n"
        "Clickable: nothing\n"
        "Steps left: 30"
    )
    # At worst a token a byte.
    assert len((environment.rules + message).encode()) < 2048
    assert "```click[buy now]```" in environment.rules


def test_results_show_number_title_and_price() -> None:
    turn = play(trip(SOFA), ["search[hollow hill sofas]"])
    assert turn.message.splitlines()[1:] == [
        "Page: results, page 1 (total results: 2)",
        "[b000000001] Hollow Hill Corner Sofa, $899.0",
        "[b000000002] Hollow Hill Side Table, $49.5 to $1180.25",
        "Clickable: [back to search] [next >] [b000000001] [b000000002]",
        "Steps left: 29",
    ]
    assert turn.state == "\n".join(turn.message.splitlines()[1:-1])


def test_product_page_marks_what_is_selected() -> None:
    turn = play(trip(SOFA), ["search[sofa]", "click[b000000001]", "click[Moss | Grey]"])
    assert turn.action == "click[moss | grey]"
    assert turn.state.splitlines() == [
        "Page: b000000001, Hollow Hill Corner Sofa",
        "Price: $899.0",
        "Selected options: color: moss | grey",
        "Clickable: [back to search] [< prev] [description] [features] [reviews] [buy now]",
        "Clickable color: [moss | grey] [dark red] [navy]",
        "Clickable size: [2 seats] [3 seats]",
    ]


@pytest.mark.parametrize(
    ("sub_page", "text"),
    [
        ("description", "Deep seats, stuffed by hand."),
        ("features", "- Washable cover\n- Oak legs"),
        ("reviews", "There are no reviews."),
    ],
)
def test_sub_pages_lead_back_with_the_options_kept(sub_page: str, text: str) -> None:
    environment = trip(SOFA)
    before = play(environment, SOFA_TRIP).state
    turn = play(environment, [f"click[{sub_page}]"])
    assert turn.state.splitlines()[0] == f"Page: {sub_page} of b000000001, Hollow Hill Corner Sofa"
    assert "\n".join(turn.state.splitlines()[1:-1]) == text
    assert environment.choices() == ("click[back to search]", "click[< prev]")
    assert play(environment, ["click[< prev]"]).state == before


def test_results_are_paged_by_ten_and_lead_on_past_the_last() -> None:
    environment = trip(SOFA)
    pages = [play(environment, ["search[desk lamp]"])]
    pages += [play(environment, ["click[Next >]"]) for _ in range(3)]
    heads = [turn.state.splitlines()[0] for turn in pages]
    assert heads == [f"Page: results, page {page} (total results: 24)" for page in (1, 2, 3, 4)]
    listed = [[line for line in turn.state.splitlines() if line[0] == "["] for turn in pages]
    assert [len(lines) for lines in listed] == [10, 10, 4, 0]
    assert len({line for lines in listed for line in lines}) == 24
    back = play(environment, ["click[< prev]", "click[< prev]"])
    assert back.state == pages[1].state
    assert "[< prev]" not in pages[0].state


def test_prev_of_a_product_returns_to_its_page_of_results_and_forgets_options() -> None:
    environment = trip(SOFA)
    results = play(environment, ["search[desk lamp]", "click[next >]"])
    asin = results.state.splitlines()[3][1:11]
    assert play(environment, [f"click[{asin}]", "click[< prev]"]).state == results.state
    environment = trip(SOFA)
    turn = play(environment, [*SOFA_TRIP, "click[< prev]", "click[b000000001]"])
    assert "Selected options: none" in turn.state


def test_back_to_search_forgets_everything() -> None:
    environment = trip(SOFA)
    first = environment.state()
    for beginning in (["search[sofa]"], SOFA_TRIP, [*SOFA_TRIP, "click[features]"]):
        assert play(environment, [*beginning, "click[back to search]"]).state == first


def test_a_search_is_possible_from_a_product_page() -> None:
    turn = play(trip(SOFA), [*SOFA_TRIP, "search[mug]"])
    assert turn.state.startswith("Page: results, page 1 (total results: 1)\n[b000000003]")


def test_a_value_named_as_a_button_is_the_button() -> None:
    environment = trip(MUG)
    page = play(environment, ["search[mug]", f"click[{MUG}]"]).state
    assert page.endswith("Clickable pattern name: [dots] [stripes]")
    assert play(environment, ["click[description]"]).state.startswith("Page: description of")


def test_of_two_options_with_one_value_the_later_has_it() -> None:
    turn = play(trip(CLOCK), ["search[clock]", f"click[{CLOCK}]", "click[10 in]"])
    assert "Selected options: dial: 10 in" in turn.state


def test_another_value_of_an_option_replaces_the_first() -> None:
    turn = play(trip(SOFA), [*SOFA_TRIP, "click[navy]"])
    assert "Selected options: color: navy, size: 3 seats" in turn.state


# Answers


@pytest.mark.parametrize(
    ("answer", "feedback"),
    [
        ("search[sofa]", "No action found."),
        ("", "No action found."),
        ("``````", "No action found."),
        ("```sofa```", "Unknown action."),
        ("```search[]```", "Unknown action."),
        ("```click[ ]```", "Unknown action."),
        ("```search[sofa] now```", "Unknown action."),
        ("```I search[sofa]```", "Unknown action."),
        ("```search[sofa]``` then ```buy```", "Unknown action."),
    ],
)
def test_an_answer_without_action_is_invalid_and_costs_a_turn(answer: str, feedback: str) -> None:
    environment = trip(SOFA)
    state = environment.state()
    turn = environment.step(answer)
    assert (turn.effect, turn.action, turn.state) == (Effect.INVALID, "", state)
    assert turn.feedback.startswith(feedback)
    assert turn.message.startswith(turn.feedback + "\nInstruction: ")
    assert turn.message.endswith("Steps left: 29")


@pytest.mark.parametrize(
    "answer",
    [
        "```search[corner sofa]```",
        "```action\nSEARCH [ Corner\n  Sofa ]\n```",
        "```click[x]``` or rather ```Search[corner sofa]```",
    ],
)
def test_case_space_and_earlier_blocks_do_not_matter(answer: str) -> None:
    turn = trip(SOFA).step(answer)
    assert (turn.effect, turn.action) == (Effect.CHANGED, "search[corner sofa]")
    assert turn.feedback == ""


@pytest.mark.parametrize("name", ["search", "buy now", "b000000001", "next >", "x" * 5000])
def test_what_is_not_on_the_page_cannot_be_clicked(name: str) -> None:
    environment = trip(SOFA)
    state = environment.state()
    turn = environment.step(f"```click[{name}]```")
    assert (turn.effect, turn.state) == (Effect.ILLEGAL, state)
    assert turn.feedback.endswith("] to click here.")
    assert len(turn.feedback) < 130


def test_selecting_again_and_searching_again_are_ineffective() -> None:
    environment = trip(SOFA)
    assert play(environment, ["search[sofa]", "search[SOFA]"]).effect is Effect.INEFFECTIVE
    turn = play(environment, ["click[b000000001]", "click[navy]", "click[navy]"])
    assert turn.effect is Effect.INEFFECTIVE
    assert turn.feedback == "click[navy]: nothing has changed."


ANSWERS = st.text(max_size=40) | st.sampled_from(
    ["search[", "click[", "]", "```", *SOFA_TRIP, "next >", "< prev", "\0", "\ud800"]
)


@given(st.lists(st.lists(ANSWERS, max_size=4).map("".join) | ANSWERS.map(lambda a: f"```{a}```")))
def test_no_answer_raises(answers: list[str]) -> None:
    environment = trip(SOFA, turn_budget=60)
    for answer in answers[:59]:
        assert environment.step(answer).end_reason == ""
    environment.close()
    environment.close()


@given(st.data())
def test_choices_do_what_they_say_until_something_is_bought(data: st.DataObject) -> None:
    environment = trip(SOFA, turn_budget=12)
    turn = None
    while turn is None or not turn.end_reason:
        choices = environment.choices()
        assert choices and len(set(choices)) == len(choices)
        action = data.draw(st.sampled_from(choices))
        turn = environment.step(f"```{action}```")
        assert turn.action == action
        assert turn.effect in (Effect.CHANGED, Effect.INEFFECTIVE)
    assert turn.end_reason in ("solved", "lost", "turn_budget")
    environment.close()


def test_the_choice_on_the_search_page_is_a_search_for_the_instruction() -> None:
    environment = trip(MUG)
    assert environment.choices() == (
        "search[a dotted mug dishwasher safe and price lower than 30 00 dollars]",
    )
    turn = play(environment, list(environment.choices()))
    assert "[b000000003]" in turn.state


# Ends


def test_a_shopper_who_does_everything_right_is_rewarded_with_one() -> None:
    turn = play(trip(SOFA), [*SOFA_TRIP, "click[Buy Now]"])
    assert (turn.end_reason, turn.reward, turn.message) == ("solved", 1.0, "")
    assert turn.state.splitlines() == [
        "Bought: B000000001",
        "Selected options: color: dark red, size: 3 seats",
    ]


def test_a_shopper_who_forgets_an_option_gets_four_of_five() -> None:
    # Two attributes, one of two options, the price: 4 of 2 + 2 + 1.
    turn = play(trip(SOFA), [*SOFA_TRIP[:3], "click[buy now]"])
    assert (turn.end_reason, turn.reward) == ("lost", 4 / 5)


def test_a_shopper_who_buys_the_table_instead_of_the_sofa_gets_the_hand_worked_part() -> None:
    # "hollow hill side table" has 2 of 4 words of the sofa's title: type 1. No attribute, no
    # option; the price of 821 is below 930: 1 of 5.
    turn = play(trip(SOFA), ["search[table]", f"click[{TABLE}]", "click[walnut]", "click[buy now]"])
    assert (turn.end_reason, turn.reward) == ("lost", 1 / 5)


def test_a_shopper_who_buys_a_lamp_for_a_sofa_gets_nothing() -> None:
    turn = play(trip(SOFA), ["search[desk]", f"click[{lamp(0)}]", "click[buy now]"])
    assert (turn.end_reason, turn.reward) == ("lost", 0.0)


def test_synthetic_goals_are_played_to_the_end() -> None:
    puzzle = puzzle_of(RUG, "synthetic-test")
    instruction = json.loads(puzzle.board)["instruction"]
    colour, size = ("navy", "large")
    assert f"color: {colour}, and size: {size}" in instruction
    environment = Webshop().environment(puzzle.board, turn_budget=30)
    environment.start()
    beginning = ["search[wool runner]", f"click[{RUG}]", f"click[{colour}]", f"click[{size}]"]
    turn = play(environment, [*beginning, "click[buy now]"])
    assert (turn.end_reason, turn.reward) == ("solved", 1.0)


def test_the_last_turn_ends_the_episode_without_reward() -> None:
    environment = trip(SOFA, turn_budget=2)
    turn = play(environment, ["search[sofa]", "click[b000000001]"])
    assert (turn.end_reason, turn.reward, turn.message) == ("turn_budget", 0.0, "")


def test_a_purchase_in_the_last_turn_counts() -> None:
    turn = play(trip(SOFA, turn_budget=5), [*SOFA_TRIP, "click[buy now]"])
    assert (turn.end_reason, turn.reward) == ("solved", 1.0)


def test_a_step_after_the_end_or_before_the_start_is_a_mistake_of_the_caller() -> None:
    environment = Webshop().environment(puzzle_of(SOFA).board, turn_budget=5)
    with pytest.raises(RuntimeError, match="call start first"):
        environment.step("```search[sofa]```")
    environment.start()
    play(environment, [*SOFA_TRIP, "click[buy now]"])
    with pytest.raises(RuntimeError, match="call start first"):
        environment.step("```search[sofa]```")


def test_an_episode_can_begin_again() -> None:
    environment = trip(SOFA)
    play(environment, [*SOFA_TRIP, "click[buy now]"])
    assert environment.start().endswith("Page: search\nClickable: nothing\nSteps left: 30")


def test_episodes_do_not_touch_each_other() -> None:
    one, two = trip(SOFA), trip(SOFA)
    play(one, SOFA_TRIP)
    assert two.state().startswith("Page: search")
    one.close()
    assert play(two, SOFA_TRIP).effect is Effect.CHANGED


def test_few_products_are_searched_in_the_loop() -> None:
    assert trip(SOFA).is_slow is False


def test_puzzle_ids_follow_what_is_asked() -> None:
    goal = Goal(asin="B", instruction="i", attributes=("a",), options=(("", "o"),), price_upper=10)
    changed = [
        replace(goal, asin="C"),
        replace(goal, instruction="j"),
        replace(goal, attributes=("b",)),
        replace(goal, options=(("", "p"),)),
    ]
    assert len({goal_id(one) for one in [goal, *changed]}) == 5
