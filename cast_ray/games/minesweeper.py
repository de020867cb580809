"""Minesweeper: rules and text. A set of cells is one number, bit ``row * cols + column``.

The first click is opened before the policy acts. A state holds the true mines; ``observe`` never
shows them. Flags are marks and nothing more, but flood fill leaves flagged cells closed.

Minesweeper boards from coordinates instead of text: a layout, and its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, ParseFailure, Status, Tier, Transition
from cast_ray.games.text import (
    cell_set,
    check_grid,
    last_fenced_block,
    members,
    neighbors,
    smallest_form,
)

SYMBOLS = ".+fF012345678*"
"""Hidden safe cell, hidden mine, flag on a safe cell, flag on a mine, counts, the mine hit."""

MAX_CELLS = 1024
"""A larger board is refused: sets of its cells would be numbers too long to work with."""

_HIDDEN = (".+", "fF")
"""What a closed cell is written as, by whether it carries a flag and whether it holds a mine."""
_ACTION = re.compile(r"\b(reveal|flag)\s+([0-9]+)\s+([0-9]+)\b", re.IGNORECASE)
_CANONICAL = re.compile(r"(reveal|flag) (0|[1-9][0-9]*) (0|[1-9][0-9]*)")
_MAX_DIGITS = 9
"""A longer number is beyond every board; Python refuses to read one of thousands of digits."""
_EXPECTED = "End with ```reveal R C``` or ```flag R C```, R the row and C the column."


@dataclass(frozen=True, slots=True, kw_only=True)
class MinesweeperLayout:
    """What never changes."""

    rows: int
    cols: int
    mines: int
    """Set of cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinesweeperState:
    """One position of a board. ``revealed`` and ``flags`` have no cell in common."""

    layout: MinesweeperLayout
    revealed: int
    """Set of open cells; a mine among them is the one that was hit."""
    flags: int
    """Set of cells."""


class Minesweeper:
    """The rules of Minesweeper as a ``Game``."""

    name = "minesweeper"
    rules = (
        "You play Minesweeper. Reveal every cell without a mine. Symbols: . hidden, F your flag, "
        "0 to 8 number of mines in the up to 8 cells around, * a mine that you hit, which loses. "
        "The headers number rows and columns from 0 at the top left. One action a turn: reveal "
        "opens a cell, and around a 0 all cells at once; flag marks a hidden cell or takes the "
        "mark away, and a marked cell cannot be revealed. Think, then end with the action, row "
        "first, between two fences of three backticks, for example ```reveal 3 2```."
    )
    tiers: Mapping[str, Tier] = {
        name: Tier(
            name=name,
            rows=side,
            cols=side,
            num_pieces=num_mines,
            turn_budget=turns,
            min_cost=1,
            max_cost=turns,
            cost_may_be_infinite=True,
        )
        for name, side, num_mines, turns in (
            ("id", 6, 7, 30),
            ("unseen", 7, 10, 40),
            ("mini", 5, 4, 14),
            ("mini-unseen", 5, 5, 14),
        )
    }

    def decode(self, text: str) -> MinesweeperState:
        """Read a board: rows of ``SYMBOLS`` joined by newlines (one more at the end is allowed).

        Raises:
            PuzzleError: the board is empty, ragged or of more than ``MAX_CELLS``, holds an unknown
                symbol, a digit that is not the number of mines around it, more than one mine that
                was hit, or no safe cell; row and column are named.
        """
        lines = text.removesuffix("\n").split("\n")
        check_grid(lines, SYMBOLS)
        grid = "".join(lines)
        rows, cols = len(lines), len(lines[0])
        check_size(rows, cols)
        layout = MinesweeperLayout(rows=rows, cols=cols, mines=cell_set(grid, "+F*"))
        _check_cells(grid, layout)
        return MinesweeperState(
            layout=layout, revealed=cell_set(grid, "012345678*"), flags=cell_set(grid, "fF")
        )

    def encode(self, state: MinesweeperState) -> str:
        """Return the rows of the board, mines included, joined by newlines."""
        return "\n".join(_lines(state))

    def observe(self, state: MinesweeperState) -> str:
        """Return the board as the policy may see it, under and beside the numbers of its cells."""
        layout = state.layout
        visible = str.maketrans("+f", ".F")
        width = max(len(str(layout.rows - 1)), len(str(layout.cols - 1)))
        header = ["", *map(str, range(layout.cols))]
        table = [header] + [
            [str(row), *line.translate(visible)] for row, line in enumerate(_lines(state))
        ]
        return "\n".join(" ".join(entry.rjust(width) for entry in line) for line in table)

    def parse(self, answer: str) -> str | ParseFailure:
        """Return the first ``reveal R C`` or ``flag R C`` inside the last fenced block."""
        content = last_fenced_block(answer)
        if content is None:
            return ParseFailure(feedback=f"No action found. {_EXPECTED}")
        match = _ACTION.search(content)
        if match is None:
            return ParseFailure(feedback=f"Unknown action. {_EXPECTED}")
        verb, row, col = match.groups()
        return f"{verb.lower()} {row.lstrip('0') or '0'} {col.lstrip('0') or '0'}"

    def apply(self, state: MinesweeperState, action: str) -> Transition[MinesweeperState]:
        """Open a cell, and from a 0 on all around, or set or lift a flag.

        A game that is won or lost allows nothing more.

        Raises:
            ValueError: ``action`` is no ``reveal R C`` or ``flag R C`` in canonical spelling.
        """
        match = _CANONICAL.fullmatch(action)
        if match is None:
            raise ValueError(f"action must be 'reveal R C' or 'flag R C', got {action!r}")
        verb, *numbers = match.groups()
        layout = state.layout
        if self.status(state) is not Status.PLAYING:
            return _illegal(state, f"{verb}: the game is over.")
        is_short = max(map(len, numbers)) <= _MAX_DIGITS
        if not (is_short and int(numbers[0]) < layout.rows and int(numbers[1]) < layout.cols):
            extent = f"rows are 0 to {layout.rows - 1}, columns 0 to {layout.cols - 1}"
            shown = action if is_short else verb
            return _illegal(state, f"{shown}: that cell is not on the board, {extent}.")
        cell = int(numbers[0]) * layout.cols + int(numbers[1])
        if state.revealed >> cell & 1:
            return _illegal(state, f"{action}: that cell is already revealed.")
        if verb == "flag":
            return _changed(replace(state, flags=state.flags ^ 1 << cell))
        if state.flags >> cell & 1:
            lifting = action_on(layout, "flag", cell)
            return _illegal(
                state, f"{action}: that cell carries your flag, which {lifting} takes away."
            )
        return _changed(replace(state, revealed=state.revealed | _opened_by(state, cell)))

    def status(self, state: MinesweeperState) -> Status:
        """Return LOST when a mine is open, WON when every other cell is."""
        layout = state.layout
        if state.revealed & layout.mines:
            return Status.LOST
        all_cells = (1 << layout.rows * layout.cols) - 1
        return Status.WON if state.revealed | layout.mines == all_cells else Status.PLAYING

    def actions(self, state: MinesweeperState) -> tuple[str, ...]:
        """Return the reveal of every cell, row by row, then the flag of every cell."""
        return (*every_reveal(state), *_on_every_cell(state.layout, "flag"))

    def scored_actions(self, state: MinesweeperState) -> tuple[str, ...]:
        """Return the reveal of every hidden cell without flag, then the lifting of every flag."""
        if self.status(state) is not Status.PLAYING:
            return ()
        layout = state.layout
        every_cell = range(layout.rows * layout.cols)
        closed = state.revealed | state.flags
        reveals = [action_on(layout, "reveal", c) for c in every_cell if not closed >> c & 1]
        lifted = [action_on(layout, "flag", c) for c in every_cell if state.flags >> c & 1]
        return (*reveals, *lifted)

    def canonical(self, state: MinesweeperState) -> str:
        """Return the smallest text over the 8 symmetries of the mines and the open cells."""
        return smallest_form(_lines(replace(state, flags=0)))


def check_size(rows: int, cols: int) -> None:
    """Raise PuzzleError if a board of this size has no cell, or more than ``MAX_CELLS``."""
    if rows < 1 or cols < 1:
        raise PuzzleError(f"a board of {rows} rows and {cols} columns has no cell: use at least 1")
    if rows * cols > MAX_CELLS:
        raise PuzzleError(
            f"a Minesweeper board of {rows} rows and {cols} columns has {rows * cols} cells, and "
            f"the game takes at most {MAX_CELLS}: use a smaller one"
        )


def num_safe_cells(board: str) -> int:
    """Return how many cells of a board, as ``encode`` writes it, hold no mine."""
    return sum(symbol not in "+F*\n" for symbol in board)


def action_on(layout: MinesweeperLayout, verb: str, cell: int) -> str:
    """Return ``reveal R C`` or ``flag R C`` for a cell."""
    return f"{verb} {cell // layout.cols} {cell % layout.cols}"


def every_reveal(state: MinesweeperState) -> tuple[str, ...]:
    """Return the reveal of each cell, row by row, open ones too."""
    return _on_every_cell(state.layout, "reveal")


def _on_every_cell(layout: MinesweeperLayout, verb: str) -> tuple[str, ...]:
    return tuple(action_on(layout, verb, cell) for cell in range(layout.rows * layout.cols))


def _opened_by(state: MinesweeperState, cell: int) -> int:
    """Return the set of cells that a reveal opens: from a 0 on, all closed ones without a flag."""
    layout = state.layout
    around = neighbors(layout.rows, layout.cols)
    opened = 1 << cell
    unvisited = [] if layout.mines & opened else [cell]
    while unvisited:
        neighborhood = around[unvisited.pop()]
        if neighborhood & layout.mines:
            continue
        fresh = neighborhood & ~(state.revealed | state.flags | opened)
        opened |= fresh
        unvisited += members(fresh)
    return opened


def _check_cells(grid: str, layout: MinesweeperLayout) -> None:
    """Raise PuzzleError unless open cells show the truth, one mine at most, and a cell is safe."""
    num_hit = 0
    for cell, (symbol, truth) in enumerate(zip(grid, _open_symbols(layout), strict=True)):
        num_hit += symbol == "*"
        if num_hit > 1:
            raise PuzzleError(
                f"a second mine that was hit (*) at {_place(cell, layout.cols)}: the first ends "
                "the game, so keep one"
            )
        if symbol.isdigit() and symbol != truth:
            raise PuzzleError(
                f"the count {symbol} at {_place(cell, layout.cols)} is wrong: the number of mines "
                f"around it is {truth}"
            )
    if layout.mines.bit_count() == len(grid):
        raise PuzzleError(
            f"the board has no safe cell in rows 0 to {layout.rows - 1}, columns 0 to "
            f"{layout.cols - 1}: leave one without a mine"
        )


@lru_cache(maxsize=1024)
def _open_symbols(layout: MinesweeperLayout) -> str:
    """Return what each cell shows once it is open, without line breaks."""
    return "".join(
        "*" if layout.mines >> cell & 1 else str((around & layout.mines).bit_count())
        for cell, around in enumerate(neighbors(layout.rows, layout.cols))
    )


def _lines(state: MinesweeperState) -> list[str]:
    """Return the rows of the board as text."""
    layout, revealed, flags = state.layout, state.revealed, state.flags
    text = "".join(
        symbol if revealed >> cell & 1 else _HIDDEN[flags >> cell & 1][layout.mines >> cell & 1]
        for cell, symbol in enumerate(_open_symbols(layout))
    )
    return [text[start : start + layout.cols] for start in range(0, len(text), layout.cols)]


def _place(cell: int, cols: int) -> str:
    return f"row {cell // cols}, column {cell % cols}"


def _changed(state: MinesweeperState) -> Transition[MinesweeperState]:
    return Transition(state=state, effect=Effect.CHANGED, feedback="")


def _illegal(state: MinesweeperState, feedback: str) -> Transition[MinesweeperState]:
    return Transition(state=state, effect=Effect.ILLEGAL, feedback=feedback)


_MINESWEEPER = Minesweeper()


def mined_layout(rows: int, cols: int, mines: Iterable[tuple[int, int]]) -> MinesweeperLayout:
    """Return a layout with mines at these places.

    Args:
        rows: number of rows.
        cols: number of columns.
        mines: (row, column) of each mine.

    Raises:
        PuzzleError: the board has no cell or too many, a mine is outside of it or given twice;
            row and column are named.
    """
    check_size(rows, cols)
    mine_set = 0
    for row, col in mines:
        _check_place(row, col, rows=rows, cols=cols)
        mine = 1 << row * cols + col
        if mine_set & mine:
            raise PuzzleError(f"the mine at row {row}, column {col} is given twice: keep one")
        mine_set |= mine
    return MinesweeperLayout(rows=rows, cols=cols, mines=mine_set)


def start_state(
    rows: int, cols: int, *, mines: Iterable[tuple[int, int]], first_click: tuple[int, int]
) -> MinesweeperState:
    """Return a board on which the first click has been opened.

    Args:
        rows: number of rows.
        cols: number of columns.
        mines: (row, column) of each mine.
        first_click: (row, column) of a cell without a mine.

    Raises:
        PuzzleError: as for ``mined_layout``, or the click is outside of the board or hits a mine.
    """
    layout = mined_layout(rows, cols, mines)
    row, col = first_click
    _check_place(row, col, rows=rows, cols=cols)
    click = row * cols + col
    if layout.mines >> click & 1:
        raise PuzzleError(
            f"the first click at row {row}, column {col} hits a mine: click a safe cell"
        )
    closed = MinesweeperState(layout=layout, revealed=0, flags=0)
    return _MINESWEEPER.apply(closed, action_on(layout, "reveal", click)).state


def _check_place(row: int, col: int, *, rows: int, cols: int) -> None:
    """Raise PuzzleError unless the cell is on the board."""
    if not (0 <= row < rows and 0 <= col < cols):
        raise PuzzleError(
            f"row {row}, column {col} is not on the board: rows are 0 to {rows - 1}, "
            f"columns 0 to {cols - 1}"
        )
