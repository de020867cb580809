"""Rules, texts and puzzles of the games; no solver."""

from cast_ray.games.registry import (
    GAMES,
    check_game_name,
    find_game,
    find_tier,
    game_names,
    get_game,
    get_plugin,
    hides_state,
)

__all__ = [
    "GAMES",
    "check_game_name",
    "find_game",
    "find_tier",
    "game_names",
    "get_game",
    "get_plugin",
    "hides_state",
]
