"""Minesweeper: rules, texts, and the facts about a game that hides its mines.

The first click is opened before the policy acts. A state holds the true mines; ``observe`` never
shows them. Flags are marks and nothing more, but flood fill leaves flagged cells closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cast_ray.errors import PuzzleError
from cast_ray.games.collections.minesweeper import read_fields
from cast_ray.games.game import (
    ActionRisk,
    CellRisks,
    Effect,
    Game,
    ParseFailure,
    Status,
    Tier,
    Transition,
)
from cast_ray.games.minesweeper_board import (
    MinesweeperLayout,
    MinesweeperState,
    check_mines,
    check_size,
    opened_by,
)
from cast_ray.games.minesweeper_json import MINEFIELD_KEYS, read_minefield
from cast_ray.games.text import (
    BoardText,
    cell_set,
    check_grid,
    grid_rows,
    last_fenced_block,
    members,
    neighbors,
    place_of,
    smallest_form,
)
from cast_ray.games.wording import GameWording

SYMBOLS = ".+fF012345678*"
"""Hidden safe cell, hidden mine, flag on a safe cell, flag on a mine, counts, the mine hit."""

_HIDDEN = (".+", "fF")
"""What a closed cell is written as, by whether it carries a flag and whether it holds a mine."""
_ACTION = re.compile(r"\b(reveal|flag)\s+([0-9]+)\s+([0-9]+)\b", re.IGNORECASE)
_CANONICAL = re.compile(r"(reveal|flag) (0|[1-9][0-9]*) (0|[1-9][0-9]*)")
_MAX_DIGITS = 9
"""A longer number is beyond every board; Python refuses to read one of thousands of digits."""
_WITHOUT_MINES = str.maketrans("+f", ".F")
_EXPECTED = "End with ```reveal R C``` or ```flag R C```, R the row and C the column."


class Minesweeper(Game[MinesweeperState]):
    """The rules of Minesweeper as a ``Game``."""

    name = "minesweeper"
    symbols = SYMBOLS
    has_hidden_state = True
    json_keys = MINEFIELD_KEYS
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
    wording = GameWording(
        letter="K",
        unit="reveal",
        infinite="solver loses",
        lost="hit a mine",
        failure="mine",
        hidden="the mines",
        meaning=(
            "the reveals that the peek-free solver would still need, and 1 more for each flag on a "
            "safe cell. “Solver loses” means that it would hit a mine from there: no proof, "
            "because another guess may win."
        ),
        one_away="a flag on a safe cell",
        to_infinite="; a turn to a mine, or to a board on which the solver loses, costs all of K",
        from_infinite=(
            "; a guess that comes out well where the solver loses earns the K it leads to, and "
            "if it wins the number of safe cells"
        ),
    )

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
        revealed = cell_set(grid, "012345678*")
        check_mines(layout, revealed)
        _check_counts(grid, layout)
        return MinesweeperState(layout=layout, revealed=revealed, flags=cell_set(grid, "fF"))

    def encode(self, state: MinesweeperState) -> str:
        """Return the rows of the board, mines included, joined by newlines."""
        return "\n".join(_lines(state))

    def observe(self, state: MinesweeperState) -> str:
        """Return the board as the policy may see it, with the numbers of its rows and columns."""
        layout = state.layout
        width = max(len(str(layout.rows - 1)), len(str(layout.cols - 1)))
        header = ["", *map(str, range(layout.cols))]
        table = [header] + [[str(row), *line] for row, line in enumerate(self.visible_rows(state))]
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
            return Transition(state=replace(state, flags=state.flags ^ 1 << cell))
        if state.flags >> cell & 1:
            lifting = action_on(layout, "flag", cell)
            return _illegal(
                state, f"{action}: that cell carries your flag, which {lifting} takes away."
            )
        return Transition(state=replace(state, revealed=state.revealed | opened_by(state, cell)))

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

    def visible_rows(self, state: MinesweeperState) -> tuple[str, ...]:
        """Return the rows without the mines: ``. F 0-8``, and ``*`` for the one that was hit."""
        return tuple(line.translate(_WITHOUT_MINES) for line in _lines(state))

    def hidden_cells(self, state: MinesweeperState) -> tuple[tuple[int, int], ...]:
        """Return (row, column) of every mine."""
        return tuple(divmod(cell, state.layout.cols) for cell in members(state.layout.mines))

    def rescue_value(self, board: str) -> float:
        """Return the number of safe cells: the most reveals that a win can take."""
        return sum(symbol not in "+F*\n" for symbol in board)

    def risk_of(self, risks: CellRisks, action: str) -> ActionRisk | None:
        """Return the risk of a reveal; None for a flag, and for a cell that is not hidden."""
        match = _CANONICAL.fullmatch(action)
        if match is None or match[1] != "reveal":
            return None
        row, col = int(match[2]), int(match[3])
        if row >= len(risks) or col >= len(risks[0]) or (loss := risks[row][col]) is None:
            return None
        safest = min(risk for line in risks for risk in line if risk is not None)
        return ActionRisk(loss=loss, excess=loss - safest)

    def read_boards(self, text: str) -> Iterator[BoardText]:
        """Yield blocks of rows: layouts, or below a line ``mines: N`` what a player sees."""
        return read_fields(text)

    def is_mark(self, action: str) -> bool:
        """Return whether an action sets or lifts a flag."""
        return action.startswith("flag")

    def dimensions(self, state: MinesweeperState) -> tuple[int, int, int]:
        """Return rows, columns and mines."""
        return state.layout.rows, state.layout.cols, state.layout.mines.bit_count()

    def start_fault(self, state: MinesweeperState) -> str:
        """Return what is wrong unless the first click is open and no flag is set."""
        if state.flags or not state.revealed:
            return "a start has its first click open and no flag: open a cell, take flags away"
        return ""

    def from_json(self, request: Mapping[str, Any]) -> MinesweeperState:
        """Return the state that ``MINEFIELD_KEYS`` describe; see ``read_minefield``."""
        return read_minefield(request)


def action_on(layout: MinesweeperLayout, verb: str, cell: int) -> str:
    """Return ``reveal R C`` or ``flag R C`` for a cell."""
    return f"{verb} {cell // layout.cols} {cell % layout.cols}"


def every_reveal(state: MinesweeperState) -> tuple[str, ...]:
    """Return the reveal of each cell, row by row, open ones too."""
    return _on_every_cell(state.layout, "reveal")


def _on_every_cell(layout: MinesweeperLayout, verb: str) -> tuple[str, ...]:
    return tuple(action_on(layout, verb, cell) for cell in range(layout.rows * layout.cols))


def _check_counts(grid: str, layout: MinesweeperLayout) -> None:
    """Raise PuzzleError unless open cells show how many mines are around them."""
    for cell, (symbol, truth) in enumerate(zip(grid, _open_symbols(layout), strict=True)):
        if symbol.isdigit() and symbol != truth:
            raise PuzzleError(
                f"the count {symbol} at {place_of(cell, layout.cols)} is wrong: {truth} mines "
                "are around it"
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
    return grid_rows(text, layout.cols)


def _illegal(state: MinesweeperState, feedback: str) -> Transition[MinesweeperState]:
    return Transition(state=state, effect=Effect.ILLEGAL, feedback=feedback)
