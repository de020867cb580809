"""A product: how the original reads one from its file, and what it draws at random for it.

Equal to the original: which products are left out, the spelling of options and price tags, and the
order in which prices are drawn. Unlike there, the generator has a seed.

What a decoded JSON object holds under a key, or one sentence that says what is there instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import cast

from cast_ray.errors import PuzzleError
from cast_ray.games.text import shown

JsonObject = dict[str, object]


def json_object(value: object, where: str) -> JsonObject:
    """Return a value that must be a JSON object.

    Raises:
        PuzzleError: it is something else.
    """
    if not isinstance(value, dict):
        raise PuzzleError(f"{where}: an object is expected, got {shown(value)}")
    return cast(JsonObject, value)


def member(record: JsonObject, key: str, where: str) -> object:
    """Return what stands under a key that must be there.

    Raises:
        PuzzleError: the key is missing.
    """
    if key not in record:
        raise PuzzleError(f"{where}: the key {key!r} is missing")
    return record[key]


def text(record: JsonObject, key: str, where: str) -> str:
    """Return the text under a key.

    Raises:
        PuzzleError: the key is missing or holds no text.
    """
    value = member(record, key, where)
    if not isinstance(value, str):
        raise PuzzleError(f"{where}: {key!r} must be a text, got {shown(value)}")
    return value


def texts(record: JsonObject, key: str, where: str) -> tuple[str, ...]:
    """Return the list of texts under a key.

    Raises:
        PuzzleError: the key is missing or holds no list of texts.
    """
    values = items(record, key, where)
    if not all(isinstance(value, str) for value in values):
        raise PuzzleError(f"{where}: {key!r} must hold only texts, got {shown(values)}")
    return tuple(cast(list[str], values))


def items(record: JsonObject, key: str, where: str) -> list[object]:
    """Return the list under a key.

    Raises:
        PuzzleError: the key is missing or holds no list.
    """
    value = member(record, key, where)
    if not isinstance(value, list):
        raise PuzzleError(f"{where}: {key!r} must be a list, got {shown(value)}")
    return cast(list[object], value)


LONGEST_ASIN = 10
UNKNOWN_PRICE = 100.0
"""Dollars, of a product without a price: the original's figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product as the shop shows and scores it."""

    asin: str
    """Its number in the shop."""
    title: str
    description: str
    bullets: tuple[str, ...]
    """Its features."""
    query: str
    """What the product was found with when the catalogue was made: its kind."""
    product_category: str
    """Its categories from wide to narrow, divided by ``›``."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    """By name: the values to choose from, lower case."""
    price_tag: str
    """The displayed price, or the ends of a range."""
    price: float
    """Dollars, for the reward: within the range."""


def is_listed(asin: str) -> bool:
    """Return whether the original keeps a product of this number (at its first mention)."""
    return asin != "nan" and len(asin) <= LONGEST_ASIN


def read_product(
    record: JsonObject, *, attributes: tuple[str, ...], where: str, random: Random
) -> Product:
    """Return a product of the product file.

    Args:
        record: its element of the array.
        attributes: its attributes, from another file.
        where: file and number of the product, for messages.
        random: draws the price of a product with a range; once for each such product, in the
            order of the file, as the original does.

    Raises:
        PuzzleError: a key is missing or holds something else.
    """
    prices = _prices(record.get("pricing"), where)
    bullets = member(record, "small_description", where)
    return Product(
        asin=text(record, "asin", where),
        title=text(record, "name", where),
        description=text(record, "full_description", where),
        bullets=(bullets,)
        if isinstance(bullets, str)
        else texts(record, "small_description", where),
        query=text(record, "query", where).lower().strip(),
        product_category=text(record, "product_category", where),
        attributes=attributes,
        options=_options(member(record, "customization_options", where), where),
        price_tag=" to ".join(f"${price}" for price in prices),
        price=prices[0] if len(prices) == 1 else random.uniform(prices[0], prices[1]),
    )


def _prices(pricing: object, where: str) -> list[float]:
    """Return one price in dollars, or the two ends of a range."""
    if not pricing:
        return [UNKNOWN_PRICE]
    if not isinstance(pricing, str):
        raise PuzzleError(f"{where}: 'pricing' must be a text, got {pricing!r}")
    try:
        prices = [float(re.sub(r"[^\d.]", "", part)) for part in pricing.split("$")[1:]]
    except ValueError as error:
        raise PuzzleError(f"{where}: 'pricing' holds no price: {pricing!r}") from error
    if not prices:
        raise PuzzleError(f"{where}: 'pricing' has no price in dollars: {pricing!r}")
    return prices[:2]


def _options(value: object, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the values by option; of two options of one name the later one counts."""
    if not value:
        return ()
    groups: dict[str, tuple[str, ...]] = {}
    record = json_object(value, f"{where}, 'customization_options'")
    for name, contents in record.items():
        if contents is None:
            continue
        here = f"{where}, option {name!r}"
        values = [json_object(content, here) for content in items(record, name, here)]
        groups[name.lower()] = tuple(
            text(content, "value", here).strip().replace("/", " | ").lower() for content in values
        )
    return tuple(groups.items())
