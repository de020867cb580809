"""The games by name."""

from __future__ import annotations

from typing import Any

from cast_ray.errors import ConfigError
from cast_ray.games.base import Game
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.sokoban import Sokoban

GAMES: dict[str, Game[Any]] = {game.name: game for game in (Sokoban(), Minesweeper())}
"""Any: each game has a state type of its own."""


def get_game(name: str) -> Game[Any]:
    """Return the game of that name.

    Raises:
        ConfigError: there is none; the message lists the names.
    """
    if name not in GAMES:
        raise ConfigError(f"game must be one of {', '.join(GAMES)}, got {name!r}")
    return GAMES[name]
