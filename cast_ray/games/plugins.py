"""Games that other installed packages add, found by their entry points alone.

A name from a trajectory or a JSON line is only looked up among these entry points: a file that
names a module cannot get it imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np

from cast_ray.errors import ConfigError
from cast_ray.functions import told
from cast_ray.games.game import Game, Tier

GROUP = "cast_ray.games"
"""``[project.entry-points."cast_ray.games"]`` in the pyproject.toml of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GamePlugin:
    """All that a package brings with its game. Any: each game has a state type of its own."""

    game: Game[Any]
    generate: Callable[[Tier, np.random.Generator], Any]
    """Return the start state of a random puzzle of a tier; the random numbers decide all of it."""
    is_winnable: Callable[[Any, int], bool] | None = None
    """Return whether a start state can be won within that many actions, by a short search for
    environments, which know no solvers; None = every start is taken."""
    solver: Any = None
    """A ``solver_actors.registry.SolverEntry``; Any because games know no solvers. None = the game
    has no exact solver: costs are unknown, and a value network has to estimate them."""
    numeric: Any = None
    """A ``cast_ray.envs.gym.numeric.NumericRules``, for value networks: of kernels, or made by
    ``cast_ray.envs.gym.numeric.plain_rules``; None = the game has no boards of numbers."""
    drawing: Callable[[str], str] | None = None
    """Return the picture of a state, from its text, as an SVG file's text, for reports; None =
    boards are shown as text."""


def plugin_names(builtin: Collection[str]) -> tuple[str, ...]:
    """Return the names of the added games in alphabetical order; imports none of them.

    Args:
        builtin: names that are taken.

    Raises:
        ConfigError: a name is taken, or two packages add it.
    """
    names = tuple(sorted(_entry_points()))
    for name in names:
        if name in builtin:
            raise ConfigError(
                f"{_described(_entry_points()[name])} has the name of a built-in game: rename it "
                "or uninstall its package"
            )
    return names


def load_plugin(name: str) -> GamePlugin:
    """Return the added game of that name, imported on first use.

    Raises:
        ConfigError: it cannot be imported, is no ``GamePlugin``, or its game has another name.
        KeyError: no installed package adds that name.
    """
    return _load(_entry_points()[name])


def forget_plugins() -> None:
    """Read again what is installed: for tests that install a game while they run."""
    _entry_points.cache_clear()
    _load.cache_clear()


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points by name, read once in each process (13 ms for 200 packages)."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise ConfigError(
                f"{_described(other)} and {_described(point)} are two games of one name: "
                "uninstall one of their packages"
            )
    return found


@cache
def _load(point: EntryPoint) -> GamePlugin:
    try:
        plugin = point.load()
    except Exception as error:  # a module that is not ours may raise anything
        raise ConfigError(
            f"{_described(point)} cannot be imported: {told(error)}; fix or uninstall its package"
        ) from error
    if not isinstance(plugin, GamePlugin):
        raise ConfigError(
            f"{_described(point)} is of type {type(plugin).__name__}: let it name a "
            "cast_ray.games.plugins.GamePlugin"
        )
    if not isinstance(plugin.game, Game):
        raise ConfigError(
            f"{_described(point)} holds a game of type {type(plugin.game).__name__}: derive it "
            "from cast_ray.games.game.Game"
        )
    if plugin.game.name != point.name:
        raise ConfigError(
            f"{_described(point)} holds a game whose name is {plugin.game.name!r}: give both the "
            "same name"
        )
    return plugin


def _described(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"entry point {point.name} = {point.value}{package}"
