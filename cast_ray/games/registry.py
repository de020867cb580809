"""The games by name: the built-in ones, then those that installed packages add."""

from __future__ import annotations

import re
from typing import Any

from cast_ray.errors import ConfigError
from cast_ray.games.game import Game, Tier
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.plugins import GamePlugin, load_plugin, plugin_names
from cast_ray.games.rush_hour import RushHour
from cast_ray.games.sokoban import Sokoban

GAMES: dict[str, Game[Any]] = {game.name: game for game in (Sokoban(), Minesweeper(), RushHour())}
"""The built-in games. Any: each game has a state type of its own."""
_DESCRIBED_TIER = re.compile(r"[\w-]+@(\d+)x(\d+)x(\d+),(\d+)-(\d+),(\d+)", re.ASCII)


def game_names() -> tuple[str, ...]:
    """Return the names of all games, the built-in ones first.

    Raises:
        ConfigError: an added game has the name of another one.
    """
    return (*GAMES, *plugin_names(GAMES))


def get_game(name: str) -> Game[Any]:
    """Return the game of that name.

    Raises:
        ConfigError: there is none; the message lists the names. Or an added game is broken.
    """
    check_game_name(name)
    return GAMES[name] if name in GAMES else load_plugin(name).game


def find_tier(game: str | Game[Any], tier: str) -> Tier:
    """Return a tier of a game: one of its own by name, or one that ``described_tier`` wrote down.

    Raises:
        ConfigError: there is no such game or tier.
    """
    rules = get_game(game) if isinstance(game, str) else game
    tiers = rules.tiers
    if tier in tiers:
        return tiers[tier]
    match = _DESCRIBED_TIER.fullmatch(tier)
    if match is None:
        raise ConfigError(
            f"tier of {rules.name} must be one of {', '.join(tiers)}, or a YAML file that "
            f"describes one (docs/puzzle_sets.md), got {tier!r}"
        )
    rows, cols, num_pieces, min_cost, max_cost, turn_budget = map(int, match.groups())
    return Tier(
        name=tier,
        rows=rows,
        cols=cols,
        num_pieces=num_pieces,
        turn_budget=turn_budget,
        min_cost=min_cost,
        max_cost=max_cost,
        cost_may_be_infinite=any(other.cost_may_be_infinite for other in tiers.values()),
    )


def comma_separated(text: str) -> list[str]:
    """Split at the commas outside brackets and described tiers."""
    depth, parts = 0, [""]
    for letter in _DESCRIBED_TIER.sub(lambda tier: tier[0].replace(",", "\0"), text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip().replace("\0", ",") for part in parts]


def find_game(name: str) -> Game[Any] | None:
    """Return the game of that name; None if it is a benchmark, not installed, or broken.

    For stored files, which may name any game.
    """
    try:
        return get_game(name)
    except ConfigError:
        return None


def hides_state(name: str) -> bool:
    """Return whether a game hides part of its state; a benchmark has no state to hide."""
    game = find_game(name)
    return game is not None and game.has_hidden_state


def get_plugin(name: str) -> GamePlugin:
    """Return the added game of that name, with all that its package brings.

    Raises:
        ConfigError: there is none, it is a built-in one, or it is broken.
    """
    check_game_name(name)
    if name in GAMES:
        raise ConfigError(f"{name} is a built-in game, no plug-in")
    return load_plugin(name)


def check_game_name(name: str) -> None:
    """Raise ConfigError unless there is a game of that name."""
    names = game_names()
    if name not in names:
        raise ConfigError(
            f"game must be one of {', '.join(names)}, got {name!r}; a game of your own must be "
            "installed (docs/add_a_game.md)"
        )
