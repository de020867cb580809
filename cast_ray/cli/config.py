"""The command ``cast-ray config``: what every configuration key means."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cast_ray.errors import ConfigError

if TYPE_CHECKING:
    from cast_ray.config.reference import ConfigKey

_LATEX = re.compile(r" \(eq:\w+\)")
"""The paper's label, which the documentation turns into a link."""


def config(
    of: Annotated[
        str,
        typer.Argument(
            help="A key, a section or the start of a name, e.g. rollout or learner.lr. "
            "Default: all keys."
        ),
    ] = "",
    value_net: Annotated[
        bool, typer.Option("--value-net", help="Show the keys of cast-ray value-net train.")
    ] = False,
) -> None:
    """Explain configuration keys: default, allowed values and meaning of each.

    Example: cast-ray config advantage
    """
    from rich.console import Console
    from rich.padding import Padding

    from cast_ray.config.train import TrainConfig
    from cast_ray.config.value_net import ValueNetConfig

    keys = described_keys(ValueNetConfig if value_net else TrainConfig)
    found = [one for one in keys if one.key.startswith(of)]
    if not found:
        sections = sorted({one.key.partition(".")[0] for one in keys if "." in one.key})
        inside = [one.key for one in keys if of in one.key]
        hint = (
            f"keys with it: {', '.join(inside)}" if inside else f"sections: {', '.join(sections)}"
        )
        raise ConfigError(f"no key begins with {of!r}; {hint}")
    console = Console(highlight=False, markup=False)
    for one in found:
        console.print(f"{one.key}={one.default}  ({one.allowed})", style="bold")
        meaning = _LATEX.sub("", one.meaning).replace("``", "")
        console.print(Padding(meaning, (0, 0, 0, 4)))


def described_keys(kind: type) -> list[ConfigKey]:
    """Return every key of a configuration, with the names that it takes from a table elsewhere."""
    from cast_ray.algorithms.advantages import TRANSFORMS
    from cast_ray.config.reference import config_reference

    names = {"advantage.transform": ", ".join(TRANSFORMS)}
    return [replace(key, allowed=names.get(key.key, key.allowed)) for key in config_reference(kind)]
