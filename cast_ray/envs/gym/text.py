"""Any game as a Gymnasium environment of texts, and the boards on which episodes begin."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from cast_ray.config.tiers import described_tier
from cast_ray.envs.gym.render import METADATA, render
from cast_ray.envs.text_env import TURN_BUDGET, TextEnv, refuse_decided
from cast_ray.errors import PuzzleError
from cast_ray.games import find_tier
from cast_ray.games.game import Game, StateT, Status, Tier
from cast_ray.games.generators import get_generator, is_winnable
from cast_ray.games.puzzles import Puzzle

MAX_DRAWS = 1_000
"""Generated boards, one after the other, that may not be known to be winnable in time."""
StartT = TypeVar("StartT")


class Starts(Generic[StateT, StartT]):
    """Boards of one tier: the one that is asked for, a given puzzle, or a generated one.

    A generated board of a built-in game can be won within the tier's turns (``is_winnable``); no
    solver checks its cost.
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
            tier: name of the tier, or a YAML file that describes one.
            puzzles: drawn from at random; without any, boards are generated.
            size: rows and columns of a state, compared with the tier's; None accepts every size.
            prepare: turns a start state into the start of an episode; called once for each given
                puzzle.

        Raises:
            ConfigError: there is no such tier.
            PuzzleError: a puzzle is broken, decided, or not of the tier's size.
        """
        self.tier = find_tier(game, described_tier(tier))
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
                made none that can be won in time.
        """
        if board is not None:
            return self._from_board(board)
        if self._given:
            return self._given[int(rng.integers(len(self._given)))]
        name, turns = self._game.name, self.tier.turn_budget
        generate = get_generator(name)
        for _ in range(MAX_DRAWS):
            state = generate(self.tier, rng)
            is_open = self._game.status(state) is Status.PLAYING
            if is_open and is_winnable(name, state, turns):
                return self._prepare(state, self.tier)
        raise PuzzleError(
            f"none of {MAX_DRAWS} generated {name} boards of tier {self.tier.name} is known to be "
            f"winnable in {turns} turns: allow more, or give puzzles"
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
        if rows != (self.tier.rows or rows) or cols != (self.tier.cols or cols):
            raise PuzzleError(
                f"tier {self.tier.name} has {self.tier.rows} x {self.tier.cols} boards, this one "
                f"is {rows} x {cols}: use another tier"
            )


MAX_ANSWER_CHARS = 4096
"""Longest answer that the action space samples; ``step`` takes longer ones too."""
MAX_MESSAGE_CHARS = 4096


class GameTextEnv(gymnasium.Env[str, str], Generic[StateT]):
    """Observations are user messages (empty once the episode has ended), actions are answers.

    ``info["board"]`` is the state as ``Game.encode`` writes it, after ``reset`` and every turn. It
    is not for the policy: in a game with hidden parts it holds them.
    """

    metadata = METADATA
    observation_space = spaces.Text(MAX_MESSAGE_CHARS, min_length=0, charset=string.printable)
    action_space = spaces.Text(MAX_ANSWER_CHARS, min_length=0, charset=string.printable)

    def __init__(
        self,
        game: Game[StateT],
        *,
        tier: str = "id",
        puzzles: Sequence[Puzzle] = (),
        size: Callable[[StateT], tuple[int, int]] | None = None,
        is_dead: Callable[[StateT], bool] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Prepare an environment of one tier.

        Args:
            game: the rules.
            tier: gives the size of the board and the turn budget.
            puzzles: drawn from at random by ``reset``; without any, a board is generated from its
                seed.
            size: rows and columns of a state, compared with the tier's; None accepts every size.
            is_dead: as for ``TextEnv``.
            render_mode: what ``render`` gives: ``"ansi"``, ``"rgb_array"``, or None.

        Raises:
            ConfigError: there is no such tier.
            PuzzleError: a puzzle is broken, decided, or not of the tier's size.
        """
        self.render_mode = render_mode
        self._game = game
        self._board = ""
        self._starts = Starts(game, tier=tier, puzzles=puzzles, size=size, prepare=lambda s, _: s)
        self._is_dead = is_dead
        self._episode: TextEnv[StateT] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode, on ``options["board"]`` if given, and return its first message.

        Raises:
            ConfigError: there is neither a board nor a puzzle nor a generator.
            PuzzleError: that board is broken, decided or of another size.
        """
        super().reset(seed=seed)
        state = self._starts.draw(self.np_random, (options or {}).get("board"))
        budget = self._starts.tier.turn_budget
        self._episode = TextEnv(self._game, state, turn_budget=budget, is_dead=self._is_dead)
        message, self._board = self._episode.start(), self._episode.state()
        return message, {"board": self._board}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn with an answer, which may be any text.

        Returns:
            Message, reward (1 at success, else 0), terminated, truncated (by the turn budget),
            and info: ``action`` in canonical spelling, ``effect``, ``end_reason``, ``board``.

        Raises:
            RuntimeError: there is no episode, or it has ended.
        """
        if self._episode is None:
            raise RuntimeError("the episode has ended or never began: call reset first")
        turn = self._episode.step(action)
        self._board = turn.state
        if turn.end_reason:
            self._episode = None
        truncated = turn.end_reason == TURN_BUDGET
        info = {
            "action": turn.action,
            "effect": turn.effect.value,
            "end_reason": turn.end_reason,
            "board": turn.state,
        }
        return turn.message, turn.reward, bool(turn.end_reason) and not truncated, truncated, info

    def render(self) -> Any:
        """Return the present board as ``render_mode`` says.

        Raises:
            PuzzleError: no episode has begun.
        """
        return render(self._game, self._game.decode(self._board), self.render_mode)
