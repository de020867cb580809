"""What is played through texts, one answer per turn: a game, or a benchmark without a solver.

An ``Environment`` is one episode. Its player (a policy by tokens, an endpoint by messages, a
built-in player) sees only texts, whatever is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.wording import GameWording


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTurn:
    """What one answer led to."""

    action: str
    """Canonical spelling; empty where none could be read."""
    effect: Effect
    state: str
    """Text of the state after the turn: of a game from ``Game.encode``, of a benchmark its page or
    room."""
    feedback: str
    """One sentence about an action without effect; empty when the state changed."""
    message: str
    """The next user message; empty when the episode has ended."""
    end_reason: str
    """``solved``, ``lost``, ``deadlock`` or ``turn_budget``; empty while the episode continues."""
    reward: float
    """Of the episode so far; of a game 1 exactly if it is solved."""


class Environment(Protocol):
    """One episode. Calls do not overlap, but may come from several threads."""

    rules: str
    """The system prompt."""
    is_slow: bool
    """Whether ``start`` and ``step`` may take more than a few milliseconds: an event loop with many
    episodes then calls them on a thread."""

    def start(self) -> str:
        """Begin the episode and return its first user message."""
        ...

    def state(self) -> str:
        """Return the text of the present state."""
        ...

    def step(self, answer: str) -> EnvironmentTurn:
        """Carry out the action of an answer. Never raises, whatever the answer is."""
        ...

    def choices(self) -> tuple[str, ...]:
        """Return actions that would have an effect now, in a stable order; never empty while the
        episode continues."""
        ...

    def close(self) -> None:
        """Release what the episode holds; may be called before its end, and twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTier:
    """One set of tasks."""

    name: str
    turn_budget: int


class Benchmark(Protocol):
    """Tasks of one kind that are played through texts, with a reward and without a solver.

    ``cast_ray.envs.tasks`` makes one of a user's class.
    """

    name: str
    tiers: Mapping[str, BenchmarkTier]
    wording: GameWording

    def puzzles(self, tier: str) -> list[Puzzle]:
        """Return all tasks of a tier, in the benchmark's own order; their cost is unknown.

        Raises:
            EnvironmentSetupError: its package or data are missing; the message says how to get
                them.
            PuzzleError: a data file is broken.
        """
        ...

    def environment(self, board: str, *, turn_budget: int) -> Environment:
        """Return an episode of the task that ``Puzzle.board`` names.

        Raises:
            EnvironmentSetupError, PuzzleError: as ``puzzles``.
        """
        ...
