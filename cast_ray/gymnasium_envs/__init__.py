"""The games for Gymnasium: of texts for language models, of numbers for value networks.

``register_envs()`` adds ``cast_ray/SokobanText-v0``, ``cast_ray/Sokoban-v0`` and so on. Both faces
play the same episodes: reward 1 at success, else 0; the turn budget truncates; success, the game's
own failure and a deadlock (if ``is_dead`` is given) terminate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from cast_ray.errors import ConfigError
from cast_ray.games import get_game
from cast_ray.gymnasium_envs.minesweeper import MINESWEEPER_RULES
from cast_ray.gymnasium_envs.numeric import NumericEnv
from cast_ray.gymnasium_envs.rules import NumericRules
from cast_ray.gymnasium_envs.rush_hour import RUSH_HOUR_RULES
from cast_ray.gymnasium_envs.sokoban import SOKOBAN_RULES
from cast_ray.gymnasium_envs.text import GameTextEnv
from cast_ray.puzzles import Puzzle

# Any, here and below: each game has a state type of its own.
NUMERIC_RULES: dict[str, NumericRules[Any]] = {
    "sokoban": SOKOBAN_RULES,
    "rush_hour": RUSH_HOUR_RULES,
    "minesweeper": MINESWEEPER_RULES,
}
TEXT_IDS = {
    "sokoban": "cast_ray/SokobanText-v0",
    "rush_hour": "cast_ray/RushHourText-v0",
    "minesweeper": "cast_ray/MinesweeperText-v0",
}
NUMERIC_IDS = {
    "sokoban": "cast_ray/Sokoban-v0",
    "rush_hour": "cast_ray/RushHour-v0",
    "minesweeper": "cast_ray/Minesweeper-v0",
}


def register_envs() -> None:
    """Make all environments known to ``gymnasium.make``; a second call does nothing."""
    for ids, maker in ((TEXT_IDS, make_text_env), (NUMERIC_IDS, make_numeric_env)):
        for game, env_id in ids.items():
            if env_id not in gymnasium.registry:
                gymnasium.register(
                    id=env_id, entry_point=f"{__name__}:{maker.__name__}", kwargs={"game": game}
                )


def make_text_env(
    game: str,
    *,
    tier: str = "id",
    puzzles: Sequence[Puzzle] = (),
    is_dead: Callable[[Any], bool] | None = None,
) -> GameTextEnv[Any]:
    """Return the text environment of any game, by its name; arguments as for ``GameTextEnv``.

    The size of a board is checked in the games that have a numeric face.

    Raises:
        ConfigError: there is no such game or tier.
        PuzzleError: a puzzle is broken, decided, or not of the tier's size.
    """
    rules = NUMERIC_RULES.get(game)
    return GameTextEnv(
        get_game(game),
        tier=tier,
        puzzles=puzzles,
        size=rules.size if rules else None,
        is_dead=is_dead,
    )


def make_numeric_env(
    game: str,
    *,
    tier: str = "id",
    puzzles: Sequence[Puzzle] = (),
    is_dead: Callable[[Any], bool] | None = None,
) -> NumericEnv[Any]:
    """Return the numeric environment of a game; arguments as for ``NumericEnv``.

    Raises:
        ConfigError: the game has no numeric face, or there is no such tier.
        PuzzleError: a puzzle is broken, decided, or not of the tier's size.
    """
    if game not in NUMERIC_RULES:
        raise ConfigError(
            f"game must be one of {', '.join(NUMERIC_RULES)} for a numeric environment, "
            f"got {game!r}"
        )
    return NumericEnv(
        get_game(game), NUMERIC_RULES[game], tier=tier, puzzles=puzzles, is_dead=is_dead
    )
