"""Lights Out: rules, text and puzzles. A set of cells is one number, bit ``row * cols + column``.

Pressing a cell switches its light and those above, below, left and right of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, Game, ParseFailure, Status, Tier, Transition
from cast_ray.games.text import last_fenced_block

DARK, LIT = ".", "o"
MAX_SIDE = 9
"""A larger board is refused: some have more solutions than anybody can compare."""
_ACTION = re.compile(r"press\s+([0-9]{1,2})\s+([0-9]{1,2})", re.IGNORECASE)
_EXPECTED = "End with ```press R C```, R the row and C the column."


@dataclass(frozen=True, slots=True, kw_only=True)
class LightsOutState:
    """Which lights are on."""

    rows: int
    cols: int
    lights: int
    """Set of cells."""


class LightsOut(Game[LightsOutState]):
    """The rules of Lights Out as a ``Game``."""

    name = "lights_out"
    rules = (
        "You play Lights Out. Switch every light off. Symbols: o lit, . dark. Rows and columns "
        "are counted from 0 at the top left. One action a turn: pressing a cell switches its "
        "light and the lights above, below, left and right of it. Think, then end with the "
        "action, row first, between two fences of three backticks, for example ```press 2 3```."
    )
    tiers: Mapping[str, Tier] = {
        name: Tier(
            name=name,
            rows=side,
            cols=side,
            num_pieces=most_presses,
            turn_budget=2 * most_presses,
            min_cost=2,
            max_cost=most_presses,
        )
        for name, side, most_presses in (("mini", 5, 6), ("id", 7, 12))
    }

    def decode(self, text: str) -> LightsOutState:
        """Read a board: rows of ``.`` and ``o`` joined by line breaks (one at the end is allowed).

        Raises:
            PuzzleError: the board is empty, larger than ``MAX_SIDE`` or ragged, or holds another
                symbol; row and column are named.
        """
        lines = text.removesuffix("\n").split("\n")
        cols = len(lines[0])
        if cols == 0:
            raise PuzzleError("the board is empty at row 0, column 0: give rows of . and o")
        if max(len(lines), cols) > MAX_SIDE:
            raise PuzzleError(
                f"the board has {len(lines)} rows and {cols} columns: use at most {MAX_SIDE}"
            )
        for row, line in enumerate(lines):
            unknown = line.strip(DARK + LIT)
            if unknown:
                raise PuzzleError(
                    f"unknown symbol {unknown[0]!r} at row {row}, column "
                    f"{line.index(unknown[0])}: use only . and o"
                )
            if len(line) != cols:
                raise PuzzleError(
                    f"the board is ragged at row {row}, column {min(len(line), cols)}: make all "
                    f"rows {cols} cells long"
                )
        lights = sum(1 << cell for cell, symbol in enumerate("".join(lines)) if symbol == LIT)
        return LightsOutState(rows=len(lines), cols=cols, lights=lights)

    def encode(self, state: LightsOutState) -> str:
        """Return the rows of the board joined by line breaks."""
        cols = state.cols
        cells = [LIT if state.lights >> cell & 1 else DARK for cell in range(state.rows * cols)]
        return "\n".join(
            "".join(cells[start : start + cols]) for start in range(0, len(cells), cols)
        )

    def observe(self, state: LightsOutState) -> str:
        """Return the board."""
        return f"Board:\n{self.encode(state)}"

    def parse(self, answer: str) -> str | ParseFailure:
        """Return ``press R C`` if that is what the last fenced block says, in any case."""
        content = last_fenced_block(answer)
        if content is None:
            return ParseFailure(feedback=f"No action found. {_EXPECTED}")
        match = _ACTION.fullmatch(content)
        if match is None:
            return ParseFailure(feedback=f"Unknown action. {_EXPECTED}")
        return f"press {int(match[1])} {int(match[2])}"

    def apply(self, state: LightsOutState, action: str) -> Transition[LightsOutState]:
        """Press a cell; one that is not on the board changes nothing.

        Raises:
            ValueError: ``action`` is not spelled as ``parse`` spells it.
        """
        match = _ACTION.fullmatch(action)
        if match is None:
            raise ValueError(f"action must be 'press R C', got {action!r}")
        row, col = int(match[1]), int(match[2])
        if row >= state.rows or col >= state.cols:
            feedback = (
                f"{action}: that cell is not on the board, rows are 0 to {state.rows - 1}, "
                f"columns 0 to {state.cols - 1}."
            )
            return Transition(state=state, effect=Effect.ILLEGAL, feedback=feedback)
        switched = switched_by(row * state.cols + col, rows=state.rows, cols=state.cols)
        after = replace(state, lights=state.lights ^ switched)
        return Transition(state=after, effect=Effect.CHANGED, feedback="")

    def status(self, state: LightsOutState) -> Status:
        """Return WON when every light is off; Lights Out cannot be lost."""
        return Status.PLAYING if state.lights else Status.WON

    def actions(self, state: LightsOutState) -> tuple[str, ...]:
        """Return the press of every cell, row by row."""
        return presses(state.rows, state.cols)

    def scored_actions(self, state: LightsOutState) -> tuple[str, ...]:
        """Return the press of every cell, row by row: each of them changes the board."""
        return self.actions(state)

    def canonical(self, state: LightsOutState) -> str:
        """Return the smallest text over the 8 symmetries of the square."""
        return min(map(self.encode, symmetric_forms(state)))


def presses(rows: int, cols: int) -> tuple[str, ...]:
    """Return the press of every cell, row by row."""
    return tuple(f"press {row} {col}" for row in range(rows) for col in range(cols))


def lights_as_numbers(state: LightsOutState) -> np.ndarray:
    """Return ``[rows, cols]`` uint8 cells: 1 lit, 0 dark."""
    bits = [state.lights >> cell & 1 for cell in range(state.rows * state.cols)]
    return np.array(bits, np.uint8).reshape(state.rows, state.cols)


def switched_by(cell: int, *, rows: int, cols: int) -> int:
    """Return the set of cells whose light a press switches."""
    row, col = divmod(cell, cols)
    places = ((row, col), (row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1))
    return sum(1 << r * cols + c for r, c in places if 0 <= r < rows and 0 <= c < cols)


def symmetric_forms(state: LightsOutState) -> list[LightsOutState]:
    """Return the board turned and mirrored in all 8 ways."""
    game = LightsOut()
    rows = game.encode(state).split("\n")
    forms = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]  # a quarter turn
        forms += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return [game.decode(form) for form in forms]


def generate_lights_out(tier: Tier, rng: np.random.Generator) -> LightsOutState:
    """Return a board with 2 to ``tier.num_pieces`` cells pressed, no cell twice: it can be solved.

    Args:
        tier: gives the size and the most presses; its cost range is not looked at.
        rng: the only source of randomness.
    """
    lights = 0
    while not lights:  # some sets of presses cancel out
        num_presses = rng.integers(2, tier.num_pieces + 1)
        for cell in rng.permutation(tier.rows * tier.cols)[:num_presses].tolist():
            lights ^= switched_by(cell, rows=tier.rows, cols=tier.cols)
    return LightsOutState(rows=tier.rows, cols=tier.cols, lights=lights)
