"""The command ``cast-ray config``: what every configuration key means."""

from __future__ import annotations

from typing import Annotated

import typer

from cast_ray.errors import ConfigError


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

    from cast_ray.config.reference import config_reference
    from cast_ray.config.train import TrainConfig
    from cast_ray.config.value_net import ValueNetConfig

    keys = list(config_reference(ValueNetConfig if value_net else TrainConfig))
    found = [one for one in keys if one.key.startswith(of)]
    if not found:
        sections = sorted({one.key.partition(".")[0] for one in keys if "." in one.key})
        raise ConfigError(f"no key begins with {of!r}; sections: {', '.join(sections)}")
    console = Console(highlight=False, markup=False)
    for one in found:
        console.print(f"{one.key}={one.default}  ({one.allowed})", style="bold")
        console.print(Padding(one.meaning, (0, 0, 0, 4)))
