"""SVG as text: one element at a time, everything escaped."""

from __future__ import annotations

from markupsafe import Markup, escape


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """Return one element.

    Args:
        name: of the element.
        children: elements as ``Markup``; a plain string is text and is escaped.
        attributes: ``class_`` is ``class``, other underscores become hyphens; numbers get at most
            two decimals, and None omits the attribute.
    """
    opening = Markup(" ").join(
        [
            Markup(name),
            *(
                Markup('{}="{}"').format(Markup(_attribute(key)), _value(value))
                for key, value in attributes.items()
                if value is not None
            ),
        ]
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{}>{}</{}>").format(opening, inside, Markup(name))


def chart(*children: str, title: str, size: tuple[int, int], class_: str = "chart") -> Markup:
    """Return a chart of ``children``; ``title`` is for screen readers, ``size`` in pixels."""
    view = f"0 0 {size[0]} {size[1]}"
    return tag("svg", *children, class_=class_, viewBox=view, role="img", aria_label=title)


def join(parts: list[Markup]) -> Markup:
    """Return elements in sequence."""
    return Markup("").join(parts)


def path(points: list[tuple[float, float]]) -> str:
    """Return the path data of a line through points."""
    return "M" + "L".join(f"{_value(x)} {_value(y)}" for x, y in points) if points else ""


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
