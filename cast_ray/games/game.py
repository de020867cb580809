"""What a game is: pure rules over immutable, hashable states.

A ``Game`` knows rules, text and nothing else: no turn budget, no solver, no model. Everything a
puzzle is made of can be written as one text (``encode``) and read back (``decode``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

StateT = TypeVar("StateT", bound=Hashable)


class Effect(StrEnum):
    """What an answer did to the state; only ``CHANGED`` did anything."""

    CHANGED = "changed"
    INEFFECTIVE = "ineffective"
    """A valid action that met a wall, a second box, …"""
    ILLEGAL = "illegal"
    """A well-formed action that the rules forbid in this state."""
    INVALID = "invalid"
    """No action could be read from the answer."""
    TRUNCATED = "truncated"
    """The answer was cut off before its end-of-turn token and not executed."""


class Status(StrEnum):
    """Where a game stands by its own rules."""

    PLAYING = "playing"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseFailure:
    """An answer without a usable action."""

    feedback: str
    """One sentence for the policy: what was wrong and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition(Generic[StateT]):
    """The result of one action."""

    state: StateT
    """The state after the action; the same object when nothing changed."""
    effect: Effect
    feedback: str
    """One sentence for the policy; empty when the state changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of difficulty: how its puzzles are made and how long they may be played."""

    name: str
    rows: int
    cols: int
    num_pieces: int
    """Boxes, mines, vehicles, … : how full the board is, in the game's own pieces."""
    turn_budget: int
    min_cost: int
    """Least cost-to-go of a puzzle of this tier, in the game's moves."""
    max_cost: int
    """Largest cost-to-go of a puzzle of this tier, in the game's moves."""
    cost_may_be_infinite: bool = False
    """Whether boards of infinite cost are kept too: in Minesweeper it is no proof of a loss."""

    def has_cost(self, cost: float) -> bool:
        """Return whether puzzles of this cost belong here; ``inf`` = infinite, NaN = unknown."""
        if math.isinf(cost):
            return self.cost_may_be_infinite
        return self.min_cost <= cost <= self.max_cost


class Game(Protocol[StateT]):
    """The rules of one game. Implementations hold no mutable state."""

    name: str
    rules: str
    """The system prompt: rules, symbols and the form of an answer."""
    tiers: Mapping[str, Tier]

    def decode(self, text: str) -> StateT:
        """Read a state from its text; one line break at the end is allowed.

        Raises:
            PuzzleError: the text is no state of this game; row and column are named.
        """
        ...

    def encode(self, state: StateT) -> str:
        """Return the text that ``decode`` reads back to an equal state."""
        ...

    def observe(self, state: StateT) -> str:
        """Return what the policy sees of a state: a listing and a grid."""
        ...

    def parse(self, answer: str) -> str | ParseFailure:
        """Return the action, in canonical spelling, that an answer ends with. Never raises."""
        ...

    def apply(self, state: StateT, action: str) -> Transition[StateT]:
        """Carry out a canonical action. Ineffective and illegal ones change nothing."""
        ...

    def status(self, state: StateT) -> Status:
        """Return whether the game is won, lost or goes on, by its own rules alone."""
        ...

    def actions(self, state: StateT) -> tuple[str, ...]:
        """Return every action that the policy may name in a state, also those without effect."""
        ...

    def scored_actions(self, state: StateT) -> tuple[str, ...]:
        """Return the actions that change the state, in the game's canonical order."""
        ...

    def canonical(self, state: StateT) -> str:
        """Return one text for all states that are equal up to the game's symmetries."""
        ...
