"""Rush Hour: rules and text. A cell is ``row * cols + column``, counted from zero.

A vehicle keeps its line, a row or a column, for the whole game: where it stands is one number, the
offset of its first cell along that line. The exit is the right edge of the red car's row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from string import ascii_uppercase

from cast_ray.games.collections.rush_hour import read_lists
from cast_ray.games.game import Effect, Game, ParseFailure, Status, Tier, Transition
from cast_ray.games.rush_hour_board import (
    EMPTY,
    LENGTHS,
    RED_CAR,
    SIDE,
    SYMBOLS,
    WALL,
    board_text,
    line_cells,
    read_board,
)
from cast_ray.games.text import BoardText, grid_rows, last_fenced_block
from cast_ray.games.wording import GameWording

_MAX_COUNT = 99
# Possessive, so that no answer makes the match slow; no IGNORECASE, which lets foreign letters in.
_SPELLING = re.compile(
    r"{0}([A-Za-z]){0}([+-]){0}(?:([0-9]++){0})?".format(r"[\s()\[\]{}<>]*+"),
)
_CANONICAL = re.compile(r"([A-Z])([+-])([1-9][0-9]?)")
_EXPECTED = "End with a letter, a sign and a number of cells, such as ```A+2``` or ```B-1```."


@dataclass(frozen=True, slots=True, kw_only=True)
class RushHourLayout:
    """What never changes. ``V`` vehicles in order of their letters, so the red car is the first."""

    rows: int
    cols: int
    walls: bytes
    """``[rows * cols]`` 1 where a wall is."""
    letters: str
    """``[V]``"""
    are_vertical: tuple[bool, ...]
    """``[V]``"""
    lengths: tuple[int, ...]
    """``[V]`` cells."""
    lines: tuple[int, ...]
    """``[V]`` column of a vertical vehicle, row of a horizontal one."""

    def line_cells(self, vehicle: int) -> range:
        """Return the cells of a vehicle's line, ascending."""
        is_vertical = self.are_vertical[vehicle]
        return line_cells(
            self.lines[vehicle], is_vertical=is_vertical, rows=self.rows, cols=self.cols
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RushHourState:
    """One position of the vehicles."""

    layout: RushHourLayout
    offsets: tuple[int, ...]
    """``[V]`` row of the first cell of a vertical vehicle, column of that of a horizontal one."""


class RushHour(Game[RushHourState]):
    """The rules of Rush Hour as a ``Game``."""

    name = "rush_hour"
    symbols = SYMBOLS
    rules = (
        "You play Rush Hour. Bring the red car A to the right edge of the board. Symbols: . empty, "
        "x wall, A the red car, other letters vehicles, > the exit. Cells are (row, column), "
        "counted from 0 at the top left. One slide a turn: a vehicle, a sign and a number of "
        "cells. Horizontal vehicles slide left (-) or right (+), vertical ones up (-) or down (+). "
        "All cells on the way must be empty, or nothing moves. Think, then end with the action "
        "between two fences of three backticks, for example ```A+2```."
    )
    tiers: Mapping[str, Tier] = {
        name: Tier(
            name=name,
            rows=SIDE,
            cols=SIDE,
            num_pieces=num_vehicles,
            turn_budget=turn_budget,
            min_cost=min_cost,
            max_cost=max_cost,
        )
        for name, num_vehicles, min_cost, max_cost, turn_budget in (
            ("id", 7, 6, 8, 20),
            ("unseen", 9, 7, 9, 20),
            ("mini", 4, 2, 4, 8),
            ("mini-unseen", 5, 4, 5, 10),
        )
    }
    wording = GameWording(
        unit="slide",
        meaning="the slides that the best player would still need.",
        one_away="one slide away",
        to_infinite="",
    )

    @property
    def title(self) -> str:
        """Return the name for people."""
        return "Rush Hour"

    def decode(self, text: str) -> RushHourState:
        """Read lines of symbols, or 36 symbols in one; one newline at the end is allowed.

        ``.`` and ``o`` are empty, ``x`` is a wall, ``A`` the red car, ``B`` to ``Z`` are vehicles
        of 2 or 3 cells. Letters may be left out. A solved or unsolvable board is allowed.

        Raises:
            PuzzleError: the board is ragged, too large or has an unknown symbol, a vehicle is
                split, bent, too short or too long, or the red car is missing or not on its row; row
                and column are named.
        """
        board = read_board(text)
        letters = "".join(sorted(board.places))
        are_vertical, lengths, lines, offsets = zip(
            *(board.places[letter] for letter in letters), strict=True
        )
        layout = RushHourLayout(
            rows=board.rows,
            cols=board.cols,
            walls=board.walls,
            letters=letters,
            are_vertical=are_vertical,
            lengths=lengths,
            lines=lines,
        )
        return RushHourState(layout=layout, offsets=offsets)

    def encode(self, state: RushHourState) -> str:
        """Return the symbols, ``.`` for empty: one line on the usual board, else the rows."""
        return board_text(_rows(state, state.layout.letters))

    def observe(self, state: RushHourState) -> str:
        """Return the board, ``>`` behind the exit's row, then each vehicle and its cells."""
        rows = list(self.visible_rows(state))
        rows[state.layout.lines[0]] += ">"
        return "\n".join(["Board:", *rows, "Vehicles:", *_listing(state)])

    def parse(self, answer: str) -> str | ParseFailure:
        """Return a slide such as ``A+2`` if the last fenced block is one.

        Any case, brackets and spaces are tolerated; a missing number is 1. A number above 99 reads
        as 99, which overshoots just the same: Python refuses to read one of 5,000 digits.
        """
        content = last_fenced_block(answer)
        if content is None:
            return ParseFailure(feedback=f"No action found. {_EXPECTED}")
        match = _SPELLING.fullmatch(content)
        if match is None:
            return ParseFailure(feedback=f"Unknown action. {_EXPECTED}")
        letter, sign, digits = match.groups(default="1")
        count = digits.lstrip("0")
        if not count:
            return ParseFailure(feedback=f"A slide of 0 cells is no action. {_EXPECTED}")
        return f"{letter.upper()}{sign}{count if len(count) <= 2 else _MAX_COUNT}"

    def apply(self, state: RushHourState, action: str) -> Transition[RushHourState]:
        """Slide a vehicle by all the cells asked for, or not at all.

        Raises:
            ValueError: ``action`` is not spelled as ``parse`` spells it.
        """
        match = _CANONICAL.fullmatch(action)
        if match is None:
            raise ValueError(
                f"action must be a letter, + or -, and a number from 1 to {_MAX_COUNT}, "
                f"got {action!r}"
            )
        letter, sign, digits = match.groups()
        layout = state.layout
        vehicle = layout.letters.find(letter)
        if vehicle < 0:
            return _unchanged(state, Effect.INVALID, f"{action}: there is no vehicle {letter}.")
        step = 1 if sign == "+" else -1
        ahead = _cells_ahead(state, vehicle, step)
        grid = _grid(state, layout.letters)
        for cell in ahead[: int(digits)]:
            if grid[cell] != EMPTY:
                obstacle = "a wall" if grid[cell] == WALL else f"vehicle {grid[cell]}"
                return _unchanged(state, Effect.INEFFECTIVE, f"{action}: {obstacle} is in the way.")
        if int(digits) > len(ahead):
            return _unchanged(
                state, Effect.INEFFECTIVE, f"{action}: the edge of the board is in the way."
            )
        return Transition(state=_slid(state, vehicle, step * int(digits)))

    def status(self, state: RushHourState) -> Status:
        """Return WON when the red car touches the right edge; Rush Hour cannot be lost."""
        is_out = state.offsets[0] + state.layout.lengths[0] == state.layout.cols
        return Status.WON if is_out else Status.PLAYING

    def actions(self, state: RushHourState) -> tuple[str, ...]:
        """Return all slides that could fit on an empty board: by letter, - before +, shorter first.

        Of 1 to 4 cells on the usual board.
        """
        max_slide = max(state.layout.rows, state.layout.cols) - min(LENGTHS)
        return tuple(
            f"{letter}{sign}{count}"
            for letter in state.layout.letters
            for sign in "-+"
            for count in range(1, max_slide + 1)
        )

    def scored_actions(self, state: RushHourState) -> tuple[str, ...]:
        """Return all slides that fit: by letter, - before +, shorter first."""
        grid = _grid(state, state.layout.letters)
        fitting: list[str] = []
        for vehicle, letter in enumerate(state.layout.letters):
            for sign, step in (("-", -1), ("+", 1)):
                for count, cell in enumerate(_cells_ahead(state, vehicle, step), start=1):
                    if grid[cell] != EMPTY:
                        break
                    fitting.append(f"{letter}{sign}{count}")
        return tuple(fitting)

    def canonical(self, state: RushHourState) -> str:
        """Return the board with B, C, … in the order of the vehicles' first cells; A stays A.

        No turn or reflection keeps the exit in its place, so letters are the only symmetry.
        """
        layout = state.layout
        by_first_cell = sorted(
            range(1, len(layout.letters)),
            key=lambda vehicle: _cells(state, vehicle)[0],
        )
        letters = [RED_CAR] * len(layout.letters)
        for letter, vehicle in zip(ascii_uppercase[1:], by_first_cell, strict=False):
            letters[vehicle] = letter
        return board_text(_rows(state, "".join(letters)))

    def visible_rows(self, state: RushHourState) -> tuple[str, ...]:
        """Return the rows of the board."""
        return tuple(_rows(state, state.layout.letters))

    def dimensions(self, state: RushHourState) -> tuple[int, int, int]:
        """Return rows, columns and vehicles."""
        return state.layout.rows, state.layout.cols, len(state.layout.letters)

    def read_boards(self, text: str) -> Iterator[BoardText]:
        """Yield the boards of a list: one per line with moves and states, or blocks of rows."""
        return read_lists(text)


def _rows(state: RushHourState, letters: str) -> list[str]:
    """Return the rows of a board with the vehicles under these letters, ``[V]``."""
    return grid_rows("".join(_grid(state, letters)), state.layout.cols)


def _grid(state: RushHourState, letters: str) -> list[str]:
    """Return ``[rows * cols]`` symbols with the vehicles under these letters, ``[V]``."""
    grid = [WALL if wall else EMPTY for wall in state.layout.walls]
    for vehicle, letter in enumerate(letters):
        for cell in _cells(state, vehicle):
            grid[cell] = letter
    return grid


def _listing(state: RushHourState) -> list[str]:
    """Return one line for each vehicle: letter, orientation, cells."""
    layout = state.layout
    lines: list[str] = []
    for vehicle, letter in enumerate(layout.letters):
        orientation = "vertical" if layout.are_vertical[vehicle] else "horizontal"
        cells = " ".join(f"({c // layout.cols}, {c % layout.cols})" for c in _cells(state, vehicle))
        lines.append(f"{letter} {orientation} {cells}")
    return lines


def _cells(state: RushHourState, vehicle: int) -> range:
    """Return the cells of a vehicle, ascending."""
    offset = state.offsets[vehicle]
    return state.layout.line_cells(vehicle)[offset : offset + state.layout.lengths[vehicle]]


def _cells_ahead(state: RushHourState, vehicle: int, step: int) -> range:
    """Return the cells from a vehicle's end to the edge, the nearest first; -1 is left or up."""
    offset, line = state.offsets[vehicle], state.layout.line_cells(vehicle)
    if step > 0:
        return line[offset + state.layout.lengths[vehicle] :]
    return line[:offset][::-1]


def _slid(state: RushHourState, vehicle: int, distance: int) -> RushHourState:
    offsets = list(state.offsets)
    offsets[vehicle] += distance
    return replace(state, offsets=tuple(offsets))


def _unchanged(state: RushHourState, effect: Effect, feedback: str) -> Transition[RushHourState]:
    return Transition(state=state, effect=effect, feedback=feedback)
