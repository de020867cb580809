"""What an evaluation plays: held-out puzzles of games and the tasks of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from cast_ray.config.tiers import described_tier
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.importing import read_puzzle_set
from cast_ray.datasets.splits import make_boards, read_boards
from cast_ray.envs.environment import Environment
from cast_ray.envs.registry import find_benchmark, is_benchmark, make_environment, tier_of
from cast_ray.errors import ConfigError
from cast_ray.functions import pinned_name, short_name
from cast_ray.games.generators import PuzzleSource, build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.registry import comma_separated
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.runs.remote_run import is_run, readable_copy
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.uris import PathOrUri
from solver_actors.oracle import Oracle
from solver_actors.registry import StartSolver

_NUM_BOARDS = 200
"""Default number of puzzles per game and tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameTier:
    """One column of the result table."""

    game: str
    """A game or a benchmark."""
    tier: str

    @classmethod
    def parse(cls, text: str) -> GameTier:
        """Parse ``GAME``, ``GAME:TIER``, ``GAME:FILE.yaml``; by default ``id``, or its first.

        ``path/file.py:Class`` and ``package.module:Class`` are environments of the user's.

        Raises:
            ConfigError: there is no such game or tier.
        """
        name, _, tier = text.partition(":")
        if "." in name:
            name, tier = pinned_name("--games", text), ""
        return cls(game=name, tier=tier_of(name, described_tier(tier)).name)

    @property
    def turn_budget(self) -> int:
        """Turns per episode."""
        return tier_of(self.game, self.tier).turn_budget

    @property
    def file_name(self) -> str:
        """Name for files and folders."""
        return f"{short_name(self.game)}-{self.tier}"

    def __str__(self) -> str:
        return f"{short_name(self.game)}:{self.tier}"


def parse_games(text: str) -> list[GameTier]:
    """Parse ``GAME[:TIER],…``; a described tier (``near@6x6x1,4-6,8``) has commas of its own.

    Raises:
        ConfigError: one of them does not exist, or is named twice.
    """
    found = [GameTier.parse(word) for word in comma_separated(text) if word]
    if not found:
        raise ConfigError("give --games GAME[:TIER],… e.g. sokoban:id,sokoban:unseen")
    for place, which in enumerate(found):
        if str(which) in map(str, found[:place]):
            raise ConfigError(f"--games names {which} twice")
    return found


def evaluation_puzzles(
    which: GameTier, config: TrainConfig, *, limit: int | None, seen: Set[str]
) -> list[Puzzle]:
    """Return the puzzles to play.

    Args:
        which: game or benchmark, and tier.
        config: of the evaluated model.
        limit: number of puzzles; None = 200, all of a published benchmark.
        seen: ids of puzzles to leave out.

    Raises:
        PuzzleError, EnvironmentSetupError: they cannot be generated or read.
    """
    if is_benchmark(which.game):
        tasks = find_benchmark(which.game).puzzles(which.tier)
        if ":" in which.game:  # they may be thousands
            limit = limit or _NUM_BOARDS
        return [task for task in tasks if task.puzzle_id not in seen][:limit]
    return evaluation_boards(which, config, limit=limit or _NUM_BOARDS, seen=seen)


def given_puzzles(which: GameTier, files: Sequence[Path]) -> list[Puzzle]:
    """Return the boards of files or directories, in their order, with the budget of a tier.

    Raises:
        ConfigError: the game is a benchmark.
        PuzzleError: a file is missing, has no board, or a board is broken.
    """
    if is_benchmark(which.game):
        raise ConfigError(f"--puzzles has boards of a game; {which.game} has tasks of its own")
    source = PuzzleSource(game=which.game, tier=which.tier, seed=0)
    return [puzzle for file in files for puzzle in read_puzzle_set(file, source, as_given=True)]


def evaluation_boards(
    which: GameTier, config: TrainConfig, *, limit: int, seen: Set[str]
) -> list[Puzzle]:
    """Return puzzles of a game and tier that were not seen in training, up to symmetry."""
    is_own = (which.game, which.tier) == (config.game, config.tier)
    if is_own and config.puzzles.file:  # the file has this tier only
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


def environment_of(
    spec: EpisodeSpec, oracle: Oracle, *, deadlock_ends_episode: bool
) -> Environment:
    """Return the environment of an episode.

    Args:
        spec: the episode.
        oracle: has the solver that proves deadlocks.
        deadlock_ends_episode: whether a state that the solver proves lost ends the episode.
    """
    puzzle = spec.puzzle
    prover = oracle.prover(puzzle.game, puzzle.board) if deadlock_ends_episode else None
    is_dead = None if prover is None else prover.is_dead
    return make_environment(puzzle, turn_budget=spec.turn_budget, is_dead=is_dead)


def seen_in_training(model: PathOrUri) -> set[str]:
    """Return the ids of a run's training and validation puzzles; none for a model directory."""
    if not is_run(model):
        return set()
    boards = read_boards(RunDirectory.existing(readable_copy(model, folders=["puzzles"])).puzzles)
    return {puzzle.puzzle_id for puzzle in (*boards.train, *boards.validation)}
