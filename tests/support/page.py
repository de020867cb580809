"""An HTML page as a tree that tests can ask; refuses elements that are not nested well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

SVG = "http://www.w3.org/2000/svg"
"""A name, no address."""
VOID = {"meta", "link", "br", "img", "input", "hr"}
"""Elements without a closing tag."""


@dataclass(slots=True)
class Element:
    """One element; ``parts`` are its elements and texts in order."""

    tag: str
    attributes: dict[str, str]
    parts: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return all text inside but scripts, runs of white space as one space."""
        pieces = (
            part if isinstance(part, str) else part.text
            for part in self.parts
            if isinstance(part, str) or part.tag != "script"
        )
        return " ".join("".join(pieces).split())

    def all(self, name: str) -> list[Element]:
        """Return all elements inside of that tag or with that class."""
        return [element for element in self._inside() if name in element._names()]

    def one(self, name: str) -> Element:
        """Return the only element inside of that tag or with that class."""
        (found,) = self.all(name)
        return found

    @property
    def attached(self) -> Any:  # Any: JSON
        """Return the data that the page draws in the place of the only such element inside."""
        (found,) = [
            value
            for element in self._inside()
            for name, value in element.attributes.items()
            if name in ("data-chart", "data-board")
        ]
        return json.loads(found)

    @property
    def games(self) -> list[dict[str, Any]]:  # Any: JSON
        """Return the episodes that the page's players show, in the order of their places."""
        (data,) = [one for one in self.all("script") if one.attributes.get("id") == "player-data"]
        (text,) = data.parts
        assert isinstance(text, str)
        episodes = json.loads(text)["episodes"]
        places = [one.attributes.get("data-episode") for one in self.all("div")]
        return [episodes[int(place)] for place in places if place is not None]

    def _names(self) -> list[str]:
        return [self.tag, *self.attributes.get("class", "").split()]

    def _inside(self) -> Iterator[Element]:
        for part in self.parts:
            if isinstance(part, Element):
                yield part
                yield from part._inside()


def parse_page(html: str) -> Element:
    """Return the root of a page.

    Raises:
        AssertionError: an element is closed by another's tag, or never.
    """
    parser = _TreeParser()
    parser.feed(html)
    parser.close()
    assert len(parser.open) == 1, f"never closed: {[element.tag for element in parser.open[1:]]}"
    return parser.open[0]


def game_of(page: Element, when: str) -> Any:  # Any: JSON
    """Return the game that a report shows of ``before`` or ``after`` training."""
    names = [title.text for title in page.one("duel").all("h3")]
    return page.games[names.index(f"{when} training")]


def costs_in(game: Any) -> list[Any]:
    """Return ``[T + 1]`` the costs of a shown game."""
    return [turn["cost_before"] for turn in game["turns"]] + [game["turns"][-1]["cost_after"]]


def credit_in(game: Any) -> list[Any]:
    """Return ``[T]`` its shifted advantages."""
    return [turn["advantages"]["shifted"] for turn in game["turns"]]


class _TreeParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].parts.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        element = self.open.pop()
        assert element.tag == tag, f"<{element.tag}> is closed by </{tag}>"

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)
