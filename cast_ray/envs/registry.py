"""Environments by name: the games, those of other packages, and the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from cast_ray.envs.alfworld.benchmark import Alfworld
from cast_ray.envs.environment import Benchmark, BenchmarkTier, Environment
from cast_ray.envs.text_env import TextEnv
from cast_ray.envs.webshop.benchmark import Webshop
from cast_ray.errors import ConfigError
from cast_ray.games import find_tier, game_names, get_game
from cast_ray.games.game import Tier
from cast_ray.games.puzzles import Puzzle

DEFAULT_TIER = "id"
BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in (Alfworld(), Webshop())}


def make_environment(
    puzzle: Puzzle, *, turn_budget: int, is_dead: Callable[[Hashable], bool] | None = None
) -> Environment:
    """Return an episode of a puzzle.

    Args:
        puzzle: of a game or a benchmark.
        turn_budget: turns per episode, >= 1.
        is_dead: returns whether a state of a game is lost, which ends the episode; None = play on.

    Raises:
        ConfigError: there is no such game or benchmark.
        PuzzleError, EnvironmentSetupError: as ``Benchmark.environment``.
    """
    if puzzle.game in BENCHMARKS:
        return BENCHMARKS[puzzle.game].environment(puzzle.board, turn_budget=turn_budget)
    game = get_game(puzzle.game)
    start = game.decode(puzzle.board)
    return TextEnv(game, start, turn_budget=turn_budget, is_dead=is_dead)


def tier_of(name: str, tier: str) -> Tier | BenchmarkTier:
    """Return a tier of a game or benchmark; empty = its standard one, or its first.

    Raises:
        ConfigError: there is no such game, benchmark or tier.
    """
    if name not in BENCHMARKS and name not in game_names():
        raise ConfigError(
            f"there is no game or benchmark {name!r}; there are "
            f"{', '.join((*game_names(), *BENCHMARKS))}"
        )
    tiers = BENCHMARKS[name].tiers if name in BENCHMARKS else get_game(name).tiers
    tier = tier or (DEFAULT_TIER if DEFAULT_TIER in tiers else next(iter(tiers)))
    if name not in BENCHMARKS:
        return find_tier(name, tier)
    if tier not in tiers:
        raise ConfigError(f"{name} has the tiers {', '.join(tiers)}; got {tier!r}")
    return tiers[tier]
