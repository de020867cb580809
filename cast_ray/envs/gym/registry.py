"""The games for Gymnasium: of texts for language models, of numbers for value networks.

The import registers ``cast_ray/SokobanText-v0``, ``cast_ray/Sokoban-v0`` and so on. Both kinds play
the same episodes: reward 1 at success, else 0; the turn budget truncates; success, a loss by the
rules and a deadlock (if ``is_dead`` is given) terminate.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from cast_ray.envs.gym.minesweeper import MINESWEEPER_RULES
from cast_ray.envs.gym.numeric import NumericEnv, NumericRules
from cast_ray.envs.gym.rush_hour import RUSH_HOUR_RULES
from cast_ray.envs.gym.sokoban import SOKOBAN_RULES
from cast_ray.envs.gym.text import GameTextEnv
from cast_ray.errors import ConfigError
from cast_ray.games import GAMES, check_game_name, find_tier, get_game, get_plugin
from cast_ray.games.game import Tier

# Any, here and below: each game has its own state type.
NUMERIC_RULES: dict[str, NumericRules[Any]] = {
    "sokoban": SOKOBAN_RULES,
    "rush_hour": RUSH_HOUR_RULES,
    "minesweeper": MINESWEEPER_RULES,
}
NUMERIC_IDS = {
    name: f"cast_ray/{get_game(name).title.replace(' ', '')}-v0" for name in NUMERIC_RULES
}
TEXT_IDS = {name: env_id.replace("-v0", "Text-v0") for name, env_id in NUMERIC_IDS.items()}


def make_text_env(game: str, **options: Any) -> GameTextEnv[Any]:
    """Return the text environment of any game, by its name; options as for ``GameTextEnv``.

    The size of a board is checked in games that have numeric rules.

    Raises:
        ConfigError: there is no such game or tier.
        PuzzleError: a puzzle is broken, decided, or not of the tier's size.
    """
    rules = NUMERIC_RULES.get(game)
    return GameTextEnv(get_game(game), size=rules.size if rules else None, **options)


def get_numeric_rules(game: str) -> NumericRules[Any]:
    """Return what numeric environments and value networks know of a game.

    Raises:
        ConfigError: there is no such game, or it has no numeric rules.
    """
    if game in NUMERIC_RULES:
        return NUMERIC_RULES[game]
    check_game_name(game)
    rules = None if game in GAMES else get_plugin(game).numeric
    if not isinstance(rules, NumericRules):
        raise ConfigError(
            f"{game} has no boards of numbers: give its GamePlugin a NumericRules as numeric "
            "(docs/add_a_game.md); the built-in games have one"
        )
    return rules


def widest_tier(game: str, tier: str) -> Tier:
    """Return the tier with the most actions among those with boards of one tier's size.

    A network on its arrays plays every board of that size: a board with fewer pieces leaves the
    other actions masked.

    Raises:
        ConfigError: there is no such game or tier, or the game has no numeric rules.
    """
    rules, level = get_numeric_rules(game), find_tier(game, tier)
    alike = [
        one
        for one in get_game(game).tiers.values()
        if (one.rows, one.cols) == (level.rows, level.cols)
    ]
    return max([level, *alike], key=lambda one: len(rules.actions(one)))


def make_numeric_env(game: str, **options: Any) -> NumericEnv[Any]:
    """Return the numeric environment of a game; options as for ``NumericEnv``.

    Raises:
        ConfigError: the game has no numeric rules, or there is no such tier.
        PuzzleError: a puzzle is broken, decided, or not of the tier's size.
    """
    return NumericEnv(get_game(game), get_numeric_rules(game), **options)


for _ids, _maker in ((TEXT_IDS, make_text_env), (NUMERIC_IDS, make_numeric_env)):
    for _game, _id in _ids.items():
        gymnasium.register(
            id=_id, entry_point=f"{__name__}:{_maker.__name__}", kwargs={"game": _game}
        )
