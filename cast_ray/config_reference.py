"""What every configuration key means, read from the dataclasses: for ``cast-ray config`` and docs.

The sentence under a field is its description; it is in the source alone, and taken from there.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cast_ray.config import TrainConfig
from cast_ray.config_value_net import ValueNetConfig

_WORDS = {str: "text", int: "integer", float: "number", bool: "true, false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key of a configuration."""

    key: str
    """In dotted form, as on the command line."""
    allowed: str
    """Its type, or the words that it takes."""
    default: str
    """As it is written on the command line."""
    meaning: str
    """One or more sentences; empty where the name says all."""


def config_reference(kind: type = TrainConfig, prefix: str = "") -> Iterator[ConfigKey]:
    """Yield every key of a configuration in the order of its dataclasses."""
    described, types = _descriptions(kind), get_type_hints(kind)
    for item in fields(kind):
        section = item.default_factory
        if isinstance(section, type) and is_dataclass(section):
            yield from config_reference(section, f"{prefix}{item.name}.")
            continue
        yield ConfigKey(
            key=prefix + item.name,
            allowed=_allowed(types[item.name]),
            default=_written(_default(item)),
            meaning=described.get(item.name, ""),
        )


def section_summary(kind: type, key: str) -> str:
    """Return the first paragraph of what a section's dataclass says of itself.

    Args:
        kind: the configuration.
        key: of the section, in dotted form; empty = the configuration itself.
    """
    for name in filter(None, key.split(".")):
        found = next(item for item in fields(kind) if item.name == name)
        assert isinstance(found.default_factory, type)
        kind = found.default_factory
    return " ".join(inspect.getdoc(kind).split("\n\n")[0].split())  # type: ignore[union-attr]


def markdown_reference() -> str:
    """Return the page of all keys of ``cast-ray train`` and ``cast-ray value-net train``."""
    lines = [
        "# Configuration",
        "",
        "Every key of `cast-ray train`, and below those of `cast-ray value-net train`: given in a "
        "YAML file (`--config`) or on the command line (`key=value`), the latter wins. A wrong key "
        "or value is refused with what is allowed. `cast-ray config rollout` shows a section in "
        "the terminal. This page is written by `make docs` from the dataclasses in "
        "`cast_ray/config*.py`.",
    ]
    for kind, title in ((TrainConfig, "cast-ray train"), (ValueNetConfig, "cast-ray value-net")):
        lines += ["", f"## {title}"]
        for section, keys in _by_section(kind).items():
            name = f"### {section}" if section else "### Top level"
            lines += ["", name, "", section_summary(kind, section), ""]
            lines += ["| key | allowed | default | meaning |", "| --- | --- | --- | --- |"]
            lines += [_row(one) for one in keys]
    return "\n".join(lines) + "\n"


def _by_section(kind: type) -> dict[str, list[ConfigKey]]:
    sections: dict[str, list[ConfigKey]] = {}
    for one in config_reference(kind):
        sections.setdefault(one.key.rpartition(".")[0], []).append(one)
    return sections


def _row(one: ConfigKey) -> str:
    default = f"`{one.default}`" if one.default else "(empty)"
    return f"| `{one.key}` | {_cell(one.allowed)} | {default} | {_cell(one.meaning)} |"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def _descriptions(kind: type) -> dict[str, str]:
    """Return the string that stands under each field in a dataclass's source."""
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


def _default(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return item.default
    assert item.default_factory is not MISSING
    return item.default_factory()


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_written, value))}]"
    return str(value)


def _allowed(annotation: Any) -> str:
    """Return a type in the words of the command line."""
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return f"[{', '.join(map(_allowed, get_args(annotation)))}]"
    return _WORDS[annotation]
