"""The shop: which page a shopper sees, what can be clicked there and where that leads.

Equal to the original: the pages and their buttons, 10 of at most 50 results a page, that ``Next >``
leads on past the last of them, that a search is possible from every page, and what is forgotten on
the way: leaving a product forgets its chosen options, its sub-pages do not. There are no reviews:
the original's published set-up loads none either.

Pages are written in our own words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from cast_ray.envs.webshop.catalogue import Catalogue
from cast_ray.envs.webshop.products import Product

RESULTS_A_PAGE = 10
BACK_TO_SEARCH, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"


class Page(StrEnum):
    """The kinds of page."""

    SEARCH = "search"
    RESULTS = "results"
    PRODUCT = "product"
    DESCRIPTION = "description"
    FEATURES = "features"
    REVIEWS = "reviews"


SUB_PAGES = (Page.DESCRIPTION, Page.FEATURES, Page.REVIEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Where a shopper is."""

    page: Page = Page.SEARCH
    words: str = ""
    """Of the last search; empty on the search page."""
    results: tuple[str, ...] = ()
    """Numbers of the products that it found."""
    results_page: int = 1
    """Counted from one."""
    asin: str = ""
    """The product on the page; empty on the search and the results page."""
    chosen: tuple[tuple[str, str], ...] = ()
    """Name and value of the options that were selected, by name."""
    is_bought: bool = False

    def listed(self) -> tuple[str, ...]:
        """Return the numbers of the products on this page of the results."""
        first = (self.results_page - 1) * RESULTS_A_PAGE
        return self.results[first : first + RESULTS_A_PAGE]


class Shop:
    """Moves visits along; holds nothing but the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Open for visits to the products of a catalogue."""
        self._catalogue = catalogue

    def search(self, words: str) -> Visit:
        """Return the first page of what a search finds."""
        return Visit(page=Page.RESULTS, words=words, results=self._catalogue.search(words))

    def buttons(self, visit: Visit) -> tuple[str, ...]:
        """Return what can be clicked besides options, lower case, from top to bottom."""
        if visit.page is Page.SEARCH:
            return ()
        if visit.page is Page.RESULTS:
            back = (PREVIOUS,) if visit.results_page > 1 else ()
            return (BACK_TO_SEARCH, *back, NEXT, *(asin.lower() for asin in visit.listed()))
        if visit.page is Page.PRODUCT:
            return (BACK_TO_SEARCH, PREVIOUS, *SUB_PAGES, BUY)
        return (BACK_TO_SEARCH, PREVIOUS)

    def options(self, visit: Visit) -> dict[str, str]:
        """Return the name of the option by each value that can be clicked.

        A button goes before a value of the same name. Of two options with the same value the later
        one has it, as in the original.
        """
        if visit.page is not Page.PRODUCT:
            return {}
        product = self.product(visit)
        taken = ("", *self.buttons(visit))
        return {
            value: name
            for name, values in product.options
            for value in map(spaced, values)
            if value not in taken
        }

    def product(self, visit: Visit) -> Product:
        """Return the product on the page."""
        return self._catalogue.product(visit.asin)

    def products(self, visit: Visit) -> list[Product]:
        """Return the products on this page of the results."""
        return [self._catalogue.product(asin) for asin in visit.listed()]

    def click(self, visit: Visit, name: str) -> Visit | None:
        """Return where a click leads, or None if there is nothing of that name to click.

        Args:
            visit: where the shopper is.
            name: lower case, single spaces.
        """
        if name in self.buttons(visit):
            return self._press(visit, name)
        option = self.options(visit).get(name)
        if option is None:
            return None
        return replace(visit, chosen=tuple(sorted({**dict(visit.chosen), option: name}.items())))

    def _press(self, visit: Visit, name: str) -> Visit:
        """Return where a button of the page leads."""
        if name == BACK_TO_SEARCH:
            return Visit()
        if name == BUY:
            return replace(visit, is_bought=True)
        if name == NEXT:
            return replace(visit, results_page=visit.results_page + 1)
        if name == PREVIOUS:
            return _previous(visit)
        if visit.page is Page.PRODUCT:
            return replace(visit, page=Page(name))
        asin = next(asin for asin in visit.listed() if asin.lower() == name)
        return replace(visit, page=Page.PRODUCT, asin=asin)


def spaced(text: str) -> str:
    """Return a text on one line, with single spaces."""
    return " ".join(text.split())


def _previous(visit: Visit) -> Visit:
    """Return one page of results back, from a product to its results, or from a sub-page to it."""
    if visit.page is Page.RESULTS:
        return replace(visit, results_page=visit.results_page - 1)
    if visit.page is Page.PRODUCT:
        return replace(visit, page=Page.RESULTS, asin="", chosen=())
    return replace(visit, page=Page.PRODUCT)


LONGEST_TEXT = 4000
"""Characters shown of a description or of all features; what is cut off is judged all the same."""


def page_text(shop: Shop, visit: Visit) -> str:
    """Return what a page says and what can be clicked on it."""
    if visit.is_bought:
        return f"Bought: {visit.asin}\n{_chosen(visit)}"
    return "\n".join([*_lines(shop, visit), *_clickable(shop, visit)])


def _lines(shop: Shop, visit: Visit) -> list[str]:
    """Return what a page says."""
    if visit.page is Page.SEARCH:
        return ["Page: search"]
    if visit.page is Page.RESULTS:
        return [
            f"Page: results, page {visit.results_page} (total results: {len(visit.results)})",
            *(
                f"[{product.asin.lower()}] {spaced(product.title)}, {product.price_tag}"
                for product in shop.products(visit)
            ),
        ]
    product = shop.product(visit)
    head = f"{visit.asin.lower()}, {spaced(product.title)}"
    if visit.page is Page.PRODUCT:
        return [f"Page: {head}", f"Price: {product.price_tag}", _chosen(visit)]
    return [f"Page: {visit.page} of {head}", *_sub_page(product, visit.page)]


def _sub_page(product: Product, page: Page) -> list[str]:
    if page is Page.DESCRIPTION:
        return [_cut(spaced(product.description)) or "There is no description."]
    if page is Page.REVIEWS:
        return ["There are no reviews."]
    features = "\n".join(f"- {spaced(bullet)}" for bullet in product.bullets if spaced(bullet))
    return [_cut(features) or "There are no features."]


def _chosen(visit: Visit) -> str:
    chosen = ", ".join(f"{name}: {value}" for name, value in visit.chosen)
    return f"Selected options: {chosen or 'none'}"


def _clickable(shop: Shop, visit: Visit) -> list[str]:
    """Return one line with the buttons, then one for each option."""
    buttons = " ".join(f"[{name}]" for name in shop.buttons(visit))
    lines = [f"Clickable: {buttons or 'nothing'}"]
    options = shop.options(visit)
    for option in dict.fromkeys(options.values()):
        values = " ".join(f"[{value}]" for value, name in options.items() if name == option)
        lines.append(f"Clickable {spaced(option)}: {values}")
    return lines


def _cut(text: str) -> str:
    """Return the beginning of a long text, and say so."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]} … (cut after {LONGEST_TEXT} characters)"
