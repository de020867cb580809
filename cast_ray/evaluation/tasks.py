"""What an evaluation plays: held-out puzzles of games, and the tasks of benchmarks."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import make_boards, read_boards
from cast_ray.envs.registry import BENCHMARKS, tiers_of
from cast_ray.errors import ConfigError
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.runs.remote_run import is_run, readable_copy
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.uris import PathOrUri
from solver_actors.registry import StartSolver

DEFAULT_TIER = "id"
_NUM_BOARDS = 200
"""Of each game and tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameTier:
    """One column of the result table."""

    game: str
    """Or a benchmark."""
    tier: str

    @classmethod
    def parse(cls, text: str) -> GameTier:
        """Read ``GAME`` or ``GAME:TIER``; without a tier it is ``id``, or the first there is.

        Raises:
            ConfigError: there is no such game or tier.
        """
        name, _, tier = text.partition(":")
        tiers = tiers_of(name)
        tier = tier or (DEFAULT_TIER if DEFAULT_TIER in tiers else next(iter(tiers)))
        if tier not in tiers:
            raise ConfigError(f"{name} has the tiers {', '.join(tiers)}; got {tier!r}")
        return cls(game=name, tier=tier)

    @property
    def turn_budget(self) -> int:
        """Turns an episode."""
        return tiers_of(self.game)[self.tier].turn_budget

    @property
    def file_name(self) -> str:
        """For files about it."""
        return f"{self.game}-{self.tier}"

    def __str__(self) -> str:
        return f"{self.game}:{self.tier}"


def parse_games(text: str) -> list[GameTier]:
    """Read ``GAME[:TIER],…``.

    Raises:
        ConfigError: one of them does not exist, or is named twice.
    """
    found = [GameTier.parse(word.strip()) for word in text.split(",") if word.strip()]
    if not found:
        raise ConfigError("give --games GAME[:TIER],… e.g. sokoban:id,sokoban:unseen")
    for place, which in enumerate(found):
        if which in found[:place]:
            raise ConfigError(f"--games names {which} twice")
    return found


def evaluation_puzzles(
    which: GameTier, config: TrainConfig, *, limit: int | None, seen: Set[str]
) -> list[Puzzle]:
    """Return what is played: of a game ``limit`` puzzles, 200 for None; of a benchmark at most so
    many, all for None.

    Raises:
        PuzzleError, EnvironmentSetupError: they cannot be made or read.
    """
    if which.game in BENCHMARKS:
        return BENCHMARKS[which.game].puzzles(which.tier)[:limit]
    return evaluation_boards(which, config, limit=limit or _NUM_BOARDS, seen=seen)


def evaluation_boards(
    which: GameTier, config: TrainConfig, *, limit: int, seen: Set[str]
) -> list[Puzzle]:
    """Return puzzles of a game and tier, none of them seen in training up to symmetry."""
    is_own = (which.game, which.tier) == (config.game, config.tier)
    if is_own and config.puzzles.file:  # which has the run's own tier alone
        settings = replace(config.puzzles, num_held_out=limit, num_validation=1, num_train=1)
        return make_boards(which.game, which.tier, settings, exclude=seen).held_out
    return build_puzzles(
        game=which.game,
        tier=which.tier,
        count=limit,
        seed=config.puzzles.seed,
        solve=StartSolver(which.game).solve,
        exclude=seen,
    )


def seen_in_training(model: PathOrUri) -> set[str]:
    """Return the ids of the puzzles that a run trained and validated on; none for a mere model."""
    if not is_run(model):
        return set()
    boards = read_boards(RunDirectory.existing(readable_copy(model, folders=["puzzles"])).puzzles)
    return {puzzle.puzzle_id for puzzle in (*boards.train, *boards.validation)}
