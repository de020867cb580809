"""Seeded puzzle generation. The solver is an argument: this room knows no solver."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.base import Tier
from cast_ray.generators.minesweeper import generate_minesweeper
from cast_ray.generators.sokoban import generate_sokoban
from cast_ray.puzzles import Puzzle, puzzle_id_of
from cast_ray.seeds import derive_seed

GENERATORS: dict[str, Callable[[Tier, np.random.Generator], Any]] = {
    "sokoban": generate_sokoban,
    "minesweeper": generate_minesweeper,
}
"""Any: each game has a state type of its own."""


def build_puzzles(
    *,
    game: str,
    tier: str,
    count: int,
    seed: int,
    solve: Callable[[Any], float],
    exclude: Set[str] = frozenset(),
    attempts_per_puzzle: int = 50,
) -> list[Puzzle]:
    """Return ``count`` puzzles, no two equal up to symmetry, with N in the tier's range.

    Attempt i draws from a generator whose seed follows from (seed, game, tier, i) alone and is
    kept with the puzzle, so a smaller count gives the beginning of a larger one.

    Args:
        game: name of the game.
        tier: name of its tier.
        count: number of puzzles.
        seed: seed of the whole set.
        solve: gives N of a state; a state of infinite or unknown cost is left out.
        exclude: puzzle ids to leave out.
        attempts_per_puzzle: gives up after this many times ``count`` boards.

    Raises:
        ConfigError: there is no such game or tier.
        PuzzleError: too few distinct puzzles came up.
    """
    rules = get_game(game)
    if tier not in rules.tiers:
        raise ConfigError(f"tier of {game} must be one of {', '.join(rules.tiers)}, got {tier!r}")
    level = rules.tiers[tier]
    seen = set(exclude)
    puzzles: list[Puzzle] = []
    for attempt in range(count * attempts_per_puzzle):
        if len(puzzles) == count:
            break
        board_seed = derive_seed(seed, "puzzle", game, tier, attempt)
        state = GENERATORS[game](level, np.random.default_rng(board_seed))
        puzzle_id = puzzle_id_of(rules, state)
        if puzzle_id in seen:
            continue
        seen.add(puzzle_id)
        cost = solve(state)
        if level.min_cost <= cost <= level.max_cost:
            puzzles.append(
                Puzzle(
                    game=game,
                    tier=tier,
                    puzzle_id=puzzle_id,
                    board=rules.encode(state),
                    cost_to_go=int(cost),
                    seed=board_seed,
                )
            )
    if len(puzzles) < count:
        raise PuzzleError(
            f"only {len(puzzles)} of {count} distinct puzzles of {game}:{tier} came up in "
            f"{count * attempts_per_puzzle} boards from seed {seed}: ask for fewer"
        )
    return puzzles
