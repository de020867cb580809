"""Environments by name: the games, those of other packages, and the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic

from cast_ray.envs.alfworld.benchmark import Alfworld
from cast_ray.envs.environment import Benchmark, BenchmarkTier, Environment, EnvironmentTurn
from cast_ray.envs.text_env import SOLVED, TextEnv
from cast_ray.envs.webshop.benchmark import Webshop
from cast_ray.errors import ConfigError
from cast_ray.games import game_names, get_game
from cast_ray.games.game import Game, StateT, Tier
from cast_ray.games.puzzles import Puzzle

BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in (Alfworld(), Webshop())}


class GameEnvironment(Generic[StateT]):
    """An episode of a game."""

    is_slow = False

    def __init__(
        self,
        game: Game[StateT],
        board: str,
        *,
        turn_budget: int,
        is_dead: Callable[[StateT], bool] | None,
    ) -> None:
        """Prepare an episode that begins with ``start``; arguments as for ``TextEnv``."""
        self.rules = game.rules
        self._game = game
        self._env = TextEnv(game, turn_budget=turn_budget, is_dead=is_dead)
        self._state = game.decode(board)

    def start(self) -> str:
        """See ``Environment``."""
        return self._env.reset(self._state)

    def state(self) -> str:
        """See ``Environment``."""
        return self._game.encode(self._state)

    def step(self, answer: str) -> EnvironmentTurn:
        """See ``Environment``."""
        turn = self._env.step(answer)
        self._state = turn.state
        return EnvironmentTurn(
            action=turn.action,
            effect=turn.effect,
            state=self.state(),
            feedback=turn.feedback,
            message=turn.message,
            end_reason=turn.end_reason,
            reward=1.0 if turn.end_reason == SOLVED else 0.0,
        )

    def choices(self) -> tuple[str, ...]:
        """Return the actions that change the state; where none does, all that have a name."""
        return self._game.scored_actions(self._state) or self._game.actions(self._state)

    def close(self) -> None:
        """See ``Environment``."""


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
    return GameEnvironment(game, puzzle.board, turn_budget=turn_budget, is_dead=is_dead)


def tiers_of(name: str) -> Mapping[str, Tier] | Mapping[str, BenchmarkTier]:
    """Return the tiers of a game or benchmark by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name].tiers
    if name not in game_names():
        raise ConfigError(
            f"there is no game or benchmark {name!r}; there are "
            f"{', '.join((*game_names(), *BENCHMARKS))}"
        )
    return get_game(name).tiers
