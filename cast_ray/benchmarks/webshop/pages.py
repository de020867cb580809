"""Pages as texts, in words of our own."""

from __future__ import annotations

from cast_ray.benchmarks.webshop.products import Product
from cast_ray.benchmarks.webshop.shop import Page, Shop, Visit, spaced

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
