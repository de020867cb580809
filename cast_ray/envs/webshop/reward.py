"""What a purchase is worth: one function a part of the published reward.

    r = r_type · (attribute matches + option matches + [price <= limit])
        / (attributes + options + 1)

Equal to the original: the formula, its thresholds, the order of its tests, the colour words and
the fuzzy comparison (``thefuzz.token_set_ratio`` above 85, as computed by RapidFuzz, which thefuzz
calls since version 0.20). Not equal: the original takes the nouns of titles, by a spaCy model that
no package index has; here all words count but numbers and function words. See ``title_score``.

Words that the reward treats in their own way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rapidfuzz import fuzz, utils

from cast_ray.envs.webshop.goals import Goal
from cast_ray.envs.webshop.products import Product

_COLOURS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown
burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee
cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia
gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender
lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red
rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower
tan taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
_FUNCTION_WORDS = """
a an the and or but nor if as than so no not such it its this that these those there then
at by for from in into of off on onto out over per to under up upon via with without within
is are be was were been being can will has have do does
you your yours we our us they their them he his she her my i me all any each every both
"""

COLOURS = tuple(_COLOURS.split())
"""The original's, in the order in which they are looked for, which is alphabetical."""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words of titles that say nothing about the kind of a product."""


LEAST_RATIO = 85.5
"""Of 100. The original rounds to integers, halves to even ones, and demands more than 85."""
_WORD = re.compile(r"\b[^\W\d_]\w*")
_LATIN_1 = dict.fromkeys(range(128, 256))


def reward(bought: Product, options: Iterable[str], *, goal: Goal, wanted: Product) -> float:
    """Return the reward of a purchase, in [0, 1]; 1 exactly where nothing is amiss.

    Args:
        bought: the product.
        options: values of the options that were chosen.
        goal: what was asked for.
        wanted: the product that the goal was made from.
    """
    matches = (
        attribute_matches(bought, goal.attributes)
        + option_matches(options, goal.options)
        + (bought.price <= goal.price_upper)
    )
    parts = len(goal.attributes) + len(goal.options) + 1
    return type_reward(bought, wanted) * matches / parts


def type_reward(bought: Product, wanted: Product) -> float:
    """Return 1, 0.5, 0.1 or 0: how near the kind of product is to the wanted one's.

    1 if both were found with the same query, share two categories, or have a title score above
    0.2; else 0.5. Whatever else they share, 0.1 for a title score below 0.1, and 0 for none.
    """
    score = title_score(bought.title, wanted.title)
    if score == 0:
        return 0.0
    if score < 0.1:
        return 0.1
    shared = _categories(bought) & _categories(wanted)
    is_alike = bought.query == wanted.query or len(shared) >= 2 or score > 0.2
    return 1.0 if is_alike else 0.5


def title_score(bought: str, wanted: str) -> float:
    """Return which part of the wanted title's words the bought one has; 0.2 if it has no words.

    Words that both have count once, the wanted title's words as often as they occur, as in
    the original. There only nouns and names are words; here adjectives and verbs are too. The two
    can differ in what is 0, below 0.1 or above 0.2, and so, for products that are not the one that
    the goal was made of, in whether a purchase is a success.
    """
    wanted_words = words_of(wanted)
    if not wanted_words:
        return 0.2
    return len(set(words_of(bought)) & set(wanted_words)) / len(wanted_words)


def words_of(title: str) -> list[str]:
    """Return the words of a title, lower case, without numbers and function words."""
    return [word for word in _WORD.findall(title.lower()) if word not in FUNCTION_WORDS]


def attribute_matches(bought: Product, attributes: Iterable[str]) -> int:
    """Return how many wanted attributes a product has.

    It has one that resembles one of its attributes, or that its title, features or description
    contain.
    """
    places = (bought.title.lower(), " ".join(bought.bullets).lower(), bought.description.lower())
    return sum(
        any(is_like(own, wanted) for own in bought.attributes)
        or any(wanted in place for place in places)
        for wanted in attributes
    )


def option_matches(chosen: Iterable[str], wanted: Iterable[tuple[str, str]]) -> int:
    """Return how many wanted options are like a chosen value, each reduced to its colour first.

    Args:
        chosen: values.
        wanted: names and values; without a name as in human goals, see ``wanted_option``.
    """
    values = [first_colour(value) for value in chosen]
    return sum(any(is_like(value, wanted_option(*option)) for value in values) for option in wanted)


def wanted_option(name: str, value: str) -> str:
    """Return the text that chosen values are compared with.

    Without a name, the value's first colour or the value. With a name the original compares with
    the pair of both: a colour only if it is the complete value, else name and value together.
    """
    if not name:
        return first_colour(value)
    return next((colour for colour in COLOURS if colour in (name, value)), f"{name} {value}")


def first_colour(text: str) -> str:
    """Return the first colour word that a text contains, also within a word, or the text."""
    return next((colour for colour in COLOURS if colour in text), text)


def is_like(one: str, other: str) -> bool:
    """Return whether the sets of words of two texts are nearly the same, or one holds the other."""
    return fuzz.token_set_ratio(_plain(one), _plain(other)) >= LEAST_RATIO


def _plain(text: str) -> str:
    """Return a text in lower case, without Latin-1's accented letters and without signs."""
    return utils.default_process(text.translate(_LATIN_1))


def _categories(product: Product) -> set[str]:
    return {category.strip() for category in product.product_category.split("›")}
