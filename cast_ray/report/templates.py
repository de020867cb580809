"""The templates of the pages, and how all of them are filled in."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def page_templates() -> Environment:
    """Return the pages' templates: text is escaped, and a name that is not given is an error."""
    return Environment(
        loader=PackageLoader("cast_ray.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
