"""Goals: what to buy, in the original's two kinds and its order.

``human``: instructions that people wrote. ``synthetic``: instructions put together from a
product's kind and attributes, one for each combination of its options.

Equal to the original: which goals there are, their words, attributes and options, the order before
and after the shuffle, and how a price limit is drawn: two of the next four multiples of ten dollars
above the price, the larger one. Human goals are shuffled as in the original (seed 233), synthetic
ones as in the reference's evaluation (seed 42). The original draws prices and limits without a
seed, so there they differ from start to start; here they are those of an original that calls
``random.seed(233)`` before it loads its products.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

HUMAN, SYNTHETIC = "human", "synthetic"
SEED = 233
SYNTHETIC_SEED = 42
NO_LIMIT = 1_000_000.0
"""Dollars, for products that are too expensive for a limit."""

_LIMITS = [10.0 * tens for tens in range(1, 100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What one task asks for."""

    asin: str
    """The product that it was made from; others may fit as well."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    """Name and value; the name is empty in human goals, which give values alone."""
    price_upper: float
    """Dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanSource:
    """What a person wrote about a product."""

    asin: str
    price: float
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSource:
    """A product with a synthetic instruction."""

    asin: str
    price: float
    instruction: str
    attributes: tuple[str, ...]
    offers: tuple[tuple[str, tuple[str, ...]], ...]
    """By option: the values to choose from."""

    def num_goals(self) -> int:
        """Return the number of combinations of options; 1 without options."""
        return math.prod(len(values) for _, values in self.offers)


def human_goals(sources: Sequence[HumanSource], random: Random) -> list[Goal]:
    """Return the shuffled human goals; sources without attributes give none and draw nothing.

    Args:
        sources: in the order of the catalogue, several of one product in the order of their file.
        random: has drawn the prices of the catalogue and nothing else.
    """
    goals: list[Goal] = []
    for source in sources:
        if not source.attributes:
            continue
        limit, words = draw_limit(source.price, random)
        goals.append(
            Goal(
                asin=source.asin,
                instruction=source.instruction.strip(".") + words,
                attributes=source.attributes,
                options=tuple(("", value) for value in source.options),
                price_upper=limit,
            )
        )
    return [goals[place] for place in shuffled(len(goals), SEED)]


def synthetic_goals(
    sources: Sequence[SyntheticSource], random: Random, *, num_goals: int
) -> list[Goal]:
    """Return the first shuffled synthetic goals: all of them may be more than a machine holds.

    Args:
        sources: in the order of the catalogue.
        random: has drawn the prices of the catalogue and nothing else.
        num_goals: at most this many.
    """
    limits = [draw_limit(source.price, random) for source in sources]
    ends = list(accumulate(source.num_goals() for source in sources))
    order = shuffled(ends[-1] if ends else 0, SYNTHETIC_SEED)
    goals: list[Goal] = []
    for place in order[:num_goals]:
        number = bisect_right(ends, place)
        source = sources[number]
        limit, words = limits[number]
        rank = place - (ends[number] - source.num_goals())
        options = tuple(reversed(list(_digits(sorted(source.offers), rank))))
        listed = ", and ".join(f"{name}: {value}" for name, value in options)
        goals.append(
            Goal(
                asin=source.asin,
                instruction=f"{source.instruction}{' with ' if listed else ''}{listed}{words}",
                attributes=source.attributes,
                options=options,
                price_upper=limit,
            )
        )
    return goals


def draw_limit(price: float, random: Random) -> tuple[float, str]:
    """Return a price limit in dollars and the words that name it; draws unless it is too dear."""
    above = [limit for limit in _LIMITS if limit > price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    limit = max(random.sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"


def shuffled(num_goals: int, seed: int) -> array[int]:
    """Return ``[num_goals]`` which goal stands at each place after the shuffle."""
    order = array("q", range(num_goals))
    Random(seed).shuffle(order)  # pyright: ignore[reportArgumentType]  an array takes items too
    return order


def _digits(
    offers: Sequence[tuple[str, tuple[str, ...]]], number: int
) -> Iterator[tuple[str, str]]:
    for name, values in reversed(offers):
        number, place = divmod(number, len(values))
        yield name, values[place]
