"""Environments by name: games, benchmarks, and those of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from cast_ray.config.tiers import ENVIRONMENTS
from cast_ray.envs.alfworld.benchmark import Alfworld
from cast_ray.envs.environment import Benchmark, BenchmarkTier, Environment
from cast_ray.envs.tasks import TaskSet
from cast_ray.envs.text_env import TextEnv
from cast_ray.envs.webshop.benchmark import Webshop
from cast_ray.errors import ConfigError
from cast_ray.functions import find_function, told
from cast_ray.games import find_tier, game_names, get_game
from cast_ray.games.game import Tier
from cast_ray.games.puzzles import Puzzle

DEFAULT_TIER = "id"
BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in (Alfworld(), Webshop())}


def is_benchmark(name: str) -> bool:
    """Return whether a name is not a game's: a benchmark's or a user's class; nothing is imported.

    Any name with a colon is one: ``path/file.py:Class`` or ``package.module:Class``.
    """
    return name in BENCHMARKS or ":" in name or name in _entry_points()


@cache
def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name, or the tasks of the class that it names.

    Raises:
        ConfigError: the class cannot be imported, is no environment, or has changed since the
            configuration was read.
        CallbackError: an instance cannot be made.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    if ":" in name:
        return TaskSet(name, find_function("game", name, 0))
    point = _entry_points()[name]
    try:
        found = point.load()
    except Exception as error:  # a module that is not ours may raise anything
        raise ConfigError(
            f"entry point {point.name} = {point.value} cannot be imported: {told(error)}; fix or "
            "uninstall its package"
        ) from error
    return TaskSet(name, found)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENVIRONMENTS)}


def all_names() -> tuple[str, ...]:
    """Return the names of all games, benchmarks and installed environments; imports none."""
    return (*game_names(), *BENCHMARKS, *_entry_points())


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
    if is_benchmark(puzzle.game):
        return find_benchmark(puzzle.game).environment(puzzle.board, turn_budget=turn_budget)
    game = get_game(puzzle.game)
    start = game.decode(puzzle.board)
    return TextEnv(game, start, turn_budget=turn_budget, is_dead=is_dead)


def tier_of(name: str, tier: str) -> Tier | BenchmarkTier:
    """Return a tier of a game or benchmark; empty = its standard one, or its first.

    Raises:
        ConfigError: there is no such game, benchmark or tier.
    """
    if not is_benchmark(name) and name not in game_names():
        raise ConfigError(
            f"there is no game or environment {name!r}; there are "
            f"{', '.join(all_names())}; a game of your own must be installed "
            "(docs/add_a_game.md), an environment is named as path/file.py:Class "
            "(docs/add_an_environment.md)"
        )
    tiers = find_benchmark(name).tiers if is_benchmark(name) else get_game(name).tiers
    tier = tier or (DEFAULT_TIER if DEFAULT_TIER in tiers else next(iter(tiers)))
    if not is_benchmark(name):
        return find_tier(name, tier)
    if tier not in tiers:
        raise ConfigError(f"{name} has the tiers {', '.join(tiers)}; got {tier!r}")
    return tiers[tier]
