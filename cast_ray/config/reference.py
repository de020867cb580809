"""What every configuration key means, read from the source of the dataclasses.

The docstring under a field is its description.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cast_ray.config.train import TrainConfig

_WORDS = {str: "text", int: "integer", float: "number", bool: "true, false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key of a configuration."""

    key: str
    """In dotted form, as on the command line."""
    allowed: str
    """Its type, or the words that it can be."""
    default: str
    """As written on the command line."""
    meaning: str
    """One or more sentences; empty if the name says all."""


def config_reference(kind: type = TrainConfig) -> Iterator[ConfigKey]:
    """Yield every key of a configuration in the order of its dataclasses."""
    return _described(kind, "")


def config_values(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of a configuration and its value, as written on the command line."""
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from config_values(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, _written(value)


def differing_values(stored: Any, given: Any) -> dict[str, str]:
    """Return the keys whose values differ between two configurations of one kind.

    Args:
        stored: a resolved configuration. Any: one of the dataclasses.
        given: another.

    Returns:
        By key, a text for the user that shows both values.
    """
    values = dict(config_values(given))
    return {
        key: f"{key} ({value} there, {values[key]} given)"
        for key, value in config_values(stored)
        if value != values[key]
    }


def _described(section: type, prefix: str) -> Iterator[ConfigKey]:
    """Yield the keys of a section, with the defaults as they are written, before any is chosen."""
    described, types = field_descriptions(section), get_type_hints(section)
    for item in fields(section):
        value = item.default if item.default_factory is MISSING else item.default_factory()
        if is_dataclass(value):
            yield from _described(type(value), f"{prefix}{item.name}.")
        else:
            yield ConfigKey(
                key=prefix + item.name,
                allowed=_allowed(types[item.name]),
                default=_written(value),
                meaning=described.get(item.name, ""),
            )


def field_descriptions(kind: type) -> dict[str, str]:
    """Return the docstring under each field in a dataclass's source, by field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_written(item)}' for key, item in value.items())}}}"
    return str(value)


def _allowed(annotation: Any) -> str:
    """Return a type in the words of the command line."""
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return f"[{', '.join(map(_allowed, get_args(annotation)))}]"
    if get_origin(annotation) is list:
        return f"[{_allowed(*get_args(annotation))}, ...]"
    if get_origin(annotation) is dict:
        return "{key: value, ...}"
    return _WORDS[annotation]
