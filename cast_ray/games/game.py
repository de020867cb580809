"""What a game is: pure rules over immutable, hashable states, and the facts that others ask for.

A ``Game`` knows its rules and texts, but no solver, no model and no episode. Everything that a
puzzle consists of can be written as one text (``encode``) and read back (``decode``). Whatever the
rest of the code needs to know about one game in particular is a fact stated here: no other module
asks for a game by its name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cast_ray.games.text import BoardText, text_blocks
from cast_ray.games.wording import GameWording

StateT = TypeVar("StateT", bound=Hashable)

CellRisks = tuple[tuple[float | None, ...], ...]
"""``[rows][columns]`` exact chance that choosing a hidden cell loses; None where a cell is open."""


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
    effect: Effect = Effect.CHANGED
    feedback: str = ""
    """One sentence for the policy; empty when the state changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of difficulty: how its puzzles are made and how long they may be played.

    A size of 0 is any size: such a tier has boards of other people, and no generator.
    """

    name: str
    rows: int
    cols: int
    num_pieces: int
    """Boxes, mines, vehicles, …: how full the board is, in the game's own pieces."""
    turn_budget: int
    min_cost: int
    """Least cost-to-go of a puzzle of this tier, in the game's moves."""
    max_cost: int
    """Largest cost-to-go of a puzzle of this tier, in the game's moves."""
    cost_may_be_infinite: bool = False
    """Whether boards of infinite cost are kept too, because it does not prove a loss."""

    def has_cost(self, cost: float) -> bool:
        """Return whether puzzles of this cost belong here; ``inf`` = infinite, NaN = unknown."""
        if math.isinf(cost):
            return self.cost_may_be_infinite
        return self.min_cost <= cost <= self.max_cost

    def misfit(self, found: tuple[int, int, int] | None) -> str:
        """Return why a board of these ``Game.dimensions`` does not belong here; empty if it may."""
        wanted = (self.rows, self.cols, self.num_pieces)
        if found is None or all(
            want in (0, have) for want, have in zip(wanted, found, strict=True)
        ):
            return ""
        sizes = [" x ".join(str(n or "any") for n in each[:2]) for each in (found, wanted)]
        return (
            f"{sizes[0]} cells with {found[2]} pieces, and {self.name} has {sizes[1]} with "
            f"{self.num_pieces or 'any number'} (boxes, mines or vehicles)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRisk:
    """How dangerous an action was, by what its player could see."""

    loss: float
    """Chance that it loses, in [0, 1]; exactly 0 where it was provably safe."""
    excess: float
    """The same, minus that of the safest choice."""


class Game(ABC, Generic[StateT]):
    """The rules of one game; subclasses hold no mutable state.

    The abstract members are the rules. All others are facts about the game; their defaults suit a
    game in which the player sees the whole state.
    """

    name: str
    rules: str
    """The system prompt: rules, symbols and the form of an answer."""
    tiers: Mapping[str, Tier]
    wording: GameWording = GameWording()
    """What reports call its moves, costs and losses."""
    has_hidden_state: bool = False
    """Whether a state holds what its player may not see. The costs are then those of the true
    state: privileged until the episode ends, and no measure of regret."""
    json_keys: tuple[str, ...] = ()
    """The keys that ``from_json`` reads; empty = ``board`` is the only way to write a state."""
    symbols: str = ""
    """All that ``encode`` writes, besides line breaks; empty = not said."""

    @property
    def title(self) -> str:
        """Return the name for people."""
        return self.name.replace("_", " ").capitalize()

    @abstractmethod
    def decode(self, text: str) -> StateT:
        """Read a state from its text; one line break at the end is allowed.

        Raises:
            PuzzleError: the text is no state of this game; row and column are named.
        """

    @abstractmethod
    def encode(self, state: StateT) -> str:
        """Return the text that ``decode`` reads back to an equal state."""

    @abstractmethod
    def observe(self, state: StateT) -> str:
        """Return what the policy sees of a state: a listing and a grid."""

    @abstractmethod
    def parse(self, answer: str) -> str | ParseFailure:
        """Return the action, in canonical spelling, that an answer ends with. Never raises."""

    @abstractmethod
    def apply(self, state: StateT, action: str) -> Transition[StateT]:
        """Carry out a canonical action. Ineffective and illegal ones change nothing."""

    @abstractmethod
    def status(self, state: StateT) -> Status:
        """Return whether the game is won, lost or still open, by its own rules alone."""

    @abstractmethod
    def actions(self, state: StateT) -> tuple[str, ...]:
        """Return every action that the policy may name, including those without effect."""

    @abstractmethod
    def scored_actions(self, state: StateT) -> tuple[str, ...]:
        """Return the actions that change the state, in the game's canonical order."""

    @abstractmethod
    def canonical(self, state: StateT) -> str:
        """Return one text for all states that are equal up to the game's symmetries."""

    def visible_rows(self, state: StateT) -> tuple[str, ...]:
        """Return what the player sees as rows of symbols, for a drawing; never what is hidden."""
        return tuple(self.observe(state).split("\n"))

    def hidden_cells(self, state: StateT) -> tuple[tuple[int, int], ...] | None:
        """Return (row, column) of what the player cannot see; None in a game that hides nothing."""
        return None

    def thought(self, state: StateT) -> str:
        """Return what a player might think before an action, for demonstrations; empty = nothing.

        It follows from the board alone: no solver speaks.
        """
        return ""

    def rescue_value(self, board: str) -> float:
        """Return what a turn earns that wins from an infinite cost (0 where infinite is a proof).

        Args:
            board: any state of the puzzle, as ``encode`` writes it.
        """
        return 0.0

    def risk_of(self, risks: CellRisks, action: str) -> ActionRisk | None:
        """Return how dangerous an action was; None if it risked nothing.

        Args:
            risks: of the state before the action.
            action: in canonical spelling.
        """
        return None

    def is_mark(self, action: str) -> bool:
        """Return whether an action only takes a note on the board and is no move of the game."""
        return False

    def dimensions(self, state: StateT) -> tuple[int, int, int] | None:
        """Return rows, columns and pieces as ``Tier`` counts them; None = they are not compared."""
        return None

    def start_fault(self, state: StateT) -> str:
        """Return why a puzzle cannot begin in an open state and what to do; empty if it can."""
        return ""

    def from_json(self, request: Mapping[str, Any]) -> StateT:
        """Return the state that ``json_keys`` of a JSON object or a table's row describe.

        Args:
            request: null counts as missing. Any: its values are not checked yet.

        Raises:
            PuzzleError: a value is missing, of the wrong type, or contradicts another.
        """
        raise NotImplementedError(f"{self.name} has no json_keys")

    def read_boards(self, text: str) -> Iterator[BoardText]:
        """Yield the boards of a text file: blocks of lines, separated by empty lines or ``;``."""
        return text_blocks(text)
