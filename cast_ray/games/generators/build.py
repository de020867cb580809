"""Seeded puzzle generation. The solver is an argument: this package knows none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games import find_tier, get_game, get_plugin
from cast_ray.games.game import Status, Tier
from cast_ray.games.generators.collection import PATIENCE, PuzzleCollector, SplitRule
from cast_ray.games.generators.minesweeper import generate_minesweeper, is_minesweeper_winnable
from cast_ray.games.generators.rush_hour import generate_rush_hour, is_rush_hour_winnable
from cast_ray.games.generators.sokoban import generate_sokoban
from cast_ray.games.generators.sokoban_reach import is_sokoban_winnable
from cast_ray.games.puzzles import Puzzle, make_puzzle, puzzle_id_of
from cast_ray.seeds import derive_seed

GENERATORS: dict[str, Callable[[Tier, np.random.Generator], Any]] = {
    "sokoban": generate_sokoban,
    "minesweeper": generate_minesweeper,
    "rush_hour": generate_rush_hour,
}
"""Of the built-in games. Any: each game has a state type of its own."""
WINNABLE: dict[str, Callable[[Any, int], bool]] = {
    "sokoban": is_sokoban_winnable,
    "minesweeper": is_minesweeper_winnable,
    "rush_hour": is_rush_hour_winnable,
}
"""Short searches for environments, which know no solvers."""


def get_generator(game: str) -> Callable[[Tier, np.random.Generator], Any]:
    """Return the function that makes a game's start states.

    Raises:
        ConfigError: there is no such game, or an added one is broken.
    """
    return GENERATORS[game] if game in GENERATORS else get_plugin(game).generate


def is_winnable(game: str, state: Any, turns: int) -> bool:
    """Return whether an undecided state is known to be winnable within ``turns`` actions.

    True for added games without such a search.
    """
    search = WINNABLE[game] if game in WINNABLE else get_plugin(game).is_winnable
    return search is None or search(state, turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleSource:
    """Where puzzles come from: the same attempt always gives the same puzzle."""

    game: str
    tier: str
    seed: int

    @property
    def level(self) -> Tier:
        """Return the tier's numbers.

        Raises:
            ConfigError: there is no such game or tier.
        """
        return find_tier(self.game, self.tier)


def draw_puzzle(
    source: PuzzleSource,
    attempt: int,
    *,
    solve: Callable[[Any], float] | None,
    measure: Callable[[Any], Mapping[str, float]] | None = None,
    known: Set[str] = frozenset(),
) -> Puzzle | None:
    """Return the puzzle of one attempt, or None if its board does not belong to the tier.

    The board is drawn by a generator whose seed follows from (seed, game, tier, attempt) alone and
    is stored with the puzzle.

    Args:
        source: game, tier and seed.
        attempt: counted from 0.
        solve: gives N of a state; ``inf`` = infinite, NaN = unknown. None without a solver:
            every board then belongs to the tier, and its cost is unknown.
        measure: gives the difficulty of a state that was just solved and is kept.
        known: puzzle ids for which None may be returned unsolved.
    """
    rules, level = get_game(source.game), source.level
    seed = derive_seed(source.seed, "puzzle", source.game, source.tier, attempt)
    state = get_generator(source.game)(level, np.random.default_rng(seed))
    if rules.status(state) is not Status.PLAYING or puzzle_id_of(rules, state) in known:
        return None
    cost = math.nan if solve is None else solve(state)
    if solve is not None and not level.has_cost(cost):
        return None
    measures = measure(state) if measure else {}
    return make_puzzle(rules, state, tier=level.name, cost=cost, seed=seed, measures=measures)


def build_puzzles(
    *,
    game: str,
    tier: str,
    count: int,
    seed: int,
    solve: Callable[[Any], float] | None,
    exclude: Set[str] = frozenset(),
    at_least: int | None = None,
    patience: int = PATIENCE,
) -> list[Puzzle]:
    """Return ``count`` puzzles, no two equal up to symmetry, with N in the tier's range.

    They come in order of attempt, so a smaller count gives the beginning of a larger one. This
    process does all the work; ``cast_ray.datasets.build`` uses several.

    Args:
        game: name of the game.
        tier: name of its tier.
        count: number of puzzles.
        seed: of the set.
        solve: as for ``draw_puzzle``.
        exclude: puzzle ids to leave out.
        at_least: fewer puzzles raise an error; None = ``count``.
        patience: attempts without a new puzzle after which the search ends.

    Raises:
        ConfigError: there is no such game or tier.
        PuzzleError: too few distinct puzzles came up.
    """
    source = PuzzleSource(game=game, tier=tier, seed=seed)
    rule = SplitRule(num_test=count, num_train=0)
    collector = PuzzleCollector(rule, exclude=exclude, patience=patience)
    while not collector.is_finished:
        attempt = collector.num_attempts
        known = collector.puzzle_ids
        collector.offer(draw_puzzle(source, attempt, solve=solve, known=known))
    if len(collector.puzzles) < (count if at_least is None else at_least):
        raise PuzzleError(
            f"only {len(collector.puzzles)} of {count} distinct puzzles of {game}:{tier} found "
            f"in {collector.num_attempts:,} boards from seed {seed}; the last {patience:,} gave "
            "no new one: ask for fewer"
        )
    return collector.puzzles
