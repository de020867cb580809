"""The published reward, on cases worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.envs.webshop.goals import NO_LIMIT, Goal
from cast_ray.envs.webshop.products import Product
from cast_ray.envs.webshop.reward import (
    COLOURS,
    attribute_matches,
    first_colour,
    is_like,
    option_matches,
    reward,
    title_score,
    type_reward,
    wanted_option,
    words_of,
)

KETTLE = Product(
    asin="B000000001",
    title="Copper Kettle with Whistle",
    description="Boils Fast on gas.",
    bullets=("Cool handle", "Drip free spout"),
    query="kettles",
    product_category="Kitchen › Stove › Kettles",
    attributes=("stainless steel", "heat resistant"),
    options=(("color", ("copper", "black")), ("size", ("1 quart", "2 litre"))),
    price_tag="$40.0",
    price=40.0,
)
GOAL = Goal(
    asin=KETTLE.asin,
    instruction="a kettle",
    attributes=("stainless steel", "drip free"),
    options=(("", "black"), ("", "2 litre")),
    price_upper=50.0,
)


def test_the_wanted_product_with_its_options_earns_exactly_one() -> None:
    assert reward(KETTLE, ["black", "2 litre"], goal=GOAL, wanted=KETTLE) == 1.0


def test_a_forgotten_option_costs_one_of_five_parts() -> None:
    assert reward(KETTLE, ["black"], goal=GOAL, wanted=KETTLE) == 4 / 5


def test_no_options_and_a_price_above_the_limit_leave_two_of_five_parts() -> None:
    dear = replace(KETTLE, price=50.01)
    assert reward(dear, [], goal=GOAL, wanted=KETTLE) == 2 / 5


def test_a_price_at_the_limit_is_within_it() -> None:
    assert reward(replace(KETTLE, price=50.0), ["black", "2 litre"], goal=GOAL, wanted=KETTLE) == 1


def test_a_goal_without_limit_allows_any_price() -> None:
    goal = replace(GOAL, price_upper=NO_LIMIT)
    assert reward(replace(KETTLE, price=999.0), ["black", "2 litre"], goal=goal, wanted=KETTLE) == 1


def test_another_kind_halves_the_parts() -> None:
    # One of six words is shared, 0.167: neither query, nor categories, nor the title speak for it.
    wanted = replace(KETTLE, title="Enamel Kettle Two Litre Stove Top")
    other = replace(KETTLE, title="Kettle Bell", query="weights", product_category="Sport › Iron")
    assert title_score(other.title, wanted.title) == 1 / 6
    assert reward(other, ["black"], goal=GOAL, wanted=wanted) == 0.5 * 4 / 5


def wanted_title(num_words: int) -> str:
    """Return a title of so many words, the first of which is ``kettle``."""
    return " ".join(["kettle", *(f"w{number}" for number in range(num_words - 1))])


@pytest.mark.parametrize(
    ("num_words", "expected"),
    [(1, 1.0), (4, 1.0), (5, 0.5), (10, 0.5), (11, 0.1), (20, 0.1)],
)
def test_type_of_a_foreign_product_follows_the_title_alone(num_words: int, expected: float) -> None:
    # Above 0.2 is alike, so 1/5 is not; below 0.1 is 0.1, so 1/10 is not.
    bought = replace(KETTLE, title="Kettle", query="other", product_category="Other")
    assert type_reward(bought, replace(KETTLE, title=wanted_title(num_words))) == expected


@pytest.mark.parametrize(("num_words", "expected"), [(5, 1.0), (10, 1.0), (11, 0.1)])
def test_same_query_lifts_a_half_and_nothing_below(num_words: int, expected: float) -> None:
    bought = replace(KETTLE, title="Kettle", product_category="Other")
    assert type_reward(bought, replace(KETTLE, title=wanted_title(num_words))) == expected


def test_no_common_word_is_worth_nothing_even_with_the_same_query() -> None:
    assert type_reward(replace(KETTLE, title="Toaster"), KETTLE) == 0.0


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        ("Kettles › Kitchen", 1.0),
        ("Stove›Kettles › X", 1.0),
        ("Kitchen › Kitchen › X", 0.5),
        ("kitchen › stove", 0.5),
        ("", 0.5),
    ],
)
def test_two_different_categories_make_alike_in_any_order(categories: str, expected: float) -> None:
    bought = replace(KETTLE, title="Kettle", query="other", product_category=categories)
    assert type_reward(bought, replace(KETTLE, title=wanted_title(6))) == expected


def test_a_wanted_title_without_words_scores_a_fifth() -> None:
    assert title_score("Kettle", "12 of 40") == 0.2


def test_repeated_words_of_the_wanted_title_count_again_below_the_line_only() -> None:
    assert title_score("tea", "tea tea pot") == 1 / 3


def test_words_of_a_title_leave_out_numbers_and_function_words() -> None:
    title = "The Men's T-Shirt for 12oz 4K Café_au, No. 5x"
    assert words_of(title) == ["men", "s", "t", "shirt", "café_au"]


@pytest.mark.parametrize(
    ("attribute", "is_there"),
    [
        ("stainless steel", True),
        ("steel, STAINLESS!", True),
        ("stainless steels", True),
        ("heat", True),
        ("boils fast", True),
        ("copper kettle", True),
        ("handle drip", True),
        ("Boils", False),
        ("stone", False),
    ],
)
def test_an_attribute_is_alike_or_stands_in_the_product(attribute: str, is_there: bool) -> None:
    # "handle drip" runs over two features, which are joined; "Boils" is looked for as it is spelled
    # in texts made lower case.
    assert attribute_matches(KETTLE, [attribute]) == is_there


def test_an_attribute_counts_once_however_often_it_is_found() -> None:
    assert attribute_matches(KETTLE, ["steel", "stainless steel", "nothing"]) == 2


@pytest.mark.parametrize(
    ("chosen", "wanted", "is_there"),
    [
        ("deep navy", "navy blue", False),
        ("navy | white", "navy blue", False),
        ("sky blue", "navy blue", True),
        ("xl", "XL", True),
        ("powder snow", "cool powder snow", True),
        ("2 seats", "3 seats", True),
        ("2 litre", "1 quart", False),
    ],
)
def test_options_are_compared_by_their_first_colour_or_else_fuzzily(
    chosen: str, wanted: str, is_there: bool
) -> None:
    # "navy blue" is blue, which comes first in the alphabet. "2 seats" and "3 seats" share 12 of
    # 14 letters, 85.7: the published reward takes the one for the other.
    assert option_matches([chosen], [("", wanted)]) == is_there


def test_a_chosen_value_may_serve_for_two_wanted_ones() -> None:
    assert option_matches(["red wool"], [("", "red"), ("", "dark red"), ("", "wool red")]) == 2


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("", "dark walnut", "dark"),
        ("color", "walnut", "walnut"),
        ("color", "dark walnut", "color dark walnut"),
        ("size", "large", "size large"),
    ],
)
def test_a_named_option_is_a_colour_only_as_a_whole(name: str, value: str, expected: str) -> None:
    assert wanted_option(name, value) == expected


def test_a_synthetic_goal_is_met_by_its_own_options() -> None:
    goal = replace(GOAL, options=(("color", "black"), ("size", "2 litre")))
    assert reward(KETTLE, ["black", "2 litre"], goal=goal, wanted=KETTLE) == 1.0
    assert reward(KETTLE, ["copper", "2 litre"], goal=goal, wanted=KETTLE) == 4 / 5


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # The sets differ in one word each: (n common letters of both) / (all letters).
        ("aaaaaaaaaa b", "aaaaaaaaaa c", True),  # 22 of 24 letters
        ("aaa b", "aaa c", False),  # 8 of 10
        ("aaaa b", "aaaa c", False),  # 10 of 12
        ("aaaaa b", "aaaaa c", True),  # 12 of 14 = 85.7, rounds to 86
        ("", "", False),
        ("!!", "!!", False),
        ("n\u00e9e", "ne", True),
    ],
)
def test_likeness_is_more_than_85_of_100_after_rounding(
    one: str, other: str, expected: bool
) -> None:
    assert is_like(one, other) is expected
    assert is_like(other, one) is expected


def test_colours_are_looked_for_in_the_order_of_the_alphabet() -> None:
    assert list(COLOURS) == sorted(set(COLOURS))
    assert len(COLOURS) == 102
    assert first_colour("white ash") == "ash"
    assert first_colour("reddish") == "red"
    assert first_colour("dotted") == "dotted"


@given(
    bought=st.text(max_size=30),
    options=st.lists(st.text(max_size=12), max_size=3),
    attributes=st.lists(st.text(max_size=12), min_size=1, max_size=3),
    wanted=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=12)), max_size=3),
)
def test_reward_of_any_texts_is_between_zero_and_one(
    bought: str, options: list[str], attributes: list[str], wanted: list[tuple[str, str]]
) -> None:
    goal = replace(GOAL, attributes=tuple(attributes), options=tuple(wanted))
    assert 0 <= reward(replace(KETTLE, title=bought), options, goal=goal, wanted=KETTLE) <= 1
