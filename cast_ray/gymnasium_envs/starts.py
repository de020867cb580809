"""The boards that the episodes of a Gymnasium environment begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from cast_ray.env import refuse_decided
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games.base import Game, StateT, Status, Tier
from cast_ray.generators import get_generator
from cast_ray.puzzles import Puzzle

MAX_DRAWS = 1_000
"""Generated boards that may be decided before their first turn, one after the other."""
StartT = TypeVar("StartT")


class Starts(Generic[StateT, StartT]):
    """Boards of one tier: the one that is asked for, a given puzzle, or a generated one.

    A generated board is what the game's generator makes: no solver has looked at its cost.
    """

    def __init__(
        self,
        game: Game[StateT],
        *,
        tier: str,
        puzzles: Sequence[Puzzle],
        size: Callable[[StateT], tuple[int, int]] | None,
        prepare: Callable[[StateT, Tier], StartT],
    ) -> None:
        """Check and prepare the given puzzles.

        Args:
            game: the rules.
            tier: name of the tier.
            puzzles: drawn from at random; without any, boards are generated.
            size: rows and columns of a state, held against the tier's; None accepts every size.
            prepare: makes of a start state what the environment begins an episode with; called
                once for each given puzzle.

        Raises:
            ConfigError: there is no such tier.
            PuzzleError: a puzzle is broken, decided, or not of the tier's size.
        """
        if tier not in game.tiers:
            raise ConfigError(f"tier must be one of {', '.join(game.tiers)}, got {tier!r}")
        self.tier = game.tiers[tier]
        self._game = game
        self._size = size
        self._prepare = prepare
        self._given = [self._from_board(puzzle.board) for puzzle in puzzles]

    def draw(self, rng: np.random.Generator, board: object) -> StartT:
        """Return the start of the next episode.

        Args:
            rng: draws or generates.
            board: text of a start state; None leaves the choice to ``rng``.

        Raises:
            PuzzleError: that board is broken, decided, or not of the tier's size; or the generator
                made none to be played.
        """
        if board is not None:
            return self._from_board(board)
        if self._given:
            return self._given[int(rng.integers(len(self._given)))]
        generate = get_generator(self._game.name)
        for _ in range(MAX_DRAWS):
            state = generate(self.tier, rng)
            if self._game.status(state) is Status.PLAYING:
                return self._prepare(state, self.tier)
        raise PuzzleError(
            f"all of {MAX_DRAWS} generated {self._game.name} boards of tier {self.tier.name} were "
            "decided before the first turn: give puzzles"
        )

    def _from_board(self, board: object) -> StartT:
        if not isinstance(board, str):
            raise PuzzleError(f"a board is one text with its rows, got {type(board).__name__}")
        state = self._game.decode(board)
        if self._size is not None:
            self._check_size(*self._size(state))
        refuse_decided(self._game, state)
        return self._prepare(state, self.tier)

    def _check_size(self, rows: int, cols: int) -> None:
        if (rows, cols) != (self.tier.rows, self.tier.cols):
            raise PuzzleError(
                f"tier {self.tier.name} has {self.tier.rows} x {self.tier.cols} boards, this one "
                f"is {rows} x {cols}: use another tier"
            )
