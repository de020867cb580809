"""A state that somebody wrote as JSON read, or one sentence that says why not.

Lines of ``cast-ray solve`` and requests of the service have this form. Keys that no form has are
left alone.

A Minesweeper state from the JSON form of ``solve``: size, mines, and what is open.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cast_ray.errors import PuzzleError
from cast_ray.games import game_names, get_game
from cast_ray.games.minesweeper import MAX_CELLS, MinesweeperState, mined_layout, start_state

MINEFIELD_KEYS = ("rows", "cols", "mines", "revealed", "flags", "first_click")

_SHOWN_CHARACTERS = 40


def read_minefield(request: dict[str, Any]) -> MinesweeperState:
    """Return the state that ``MINEFIELD_KEYS`` describe; null counts as missing.

    ``revealed`` and ``flags`` are one text of 0 and 1 a row, and ``flags`` may be missing. Instead
    of both there may be ``first_click``, which is opened by the rules. A mine may be open: then the
    game is lost.

    Args:
        request: the JSON object. Any: its values are not checked yet.

    Raises:
        PuzzleError: something is missing, of the wrong type or size, given twice, or contradicts
            the rest; row and column are named.
    """
    rows, cols = _read_size(request, "rows"), _read_size(request, "cols")
    mines = _read_mines(request, rows=rows, cols=cols)
    click, revealed, flags = (request.get(key) for key in ("first_click", "revealed", "flags"))
    if click is None and revealed is None:
        raise PuzzleError('"revealed" and "first_click" are missing: give one of them')
    if click is not None and (revealed is not None or flags is not None):
        other = "revealed" if revealed is not None else "flags"
        raise PuzzleError(f'"first_click" and "{other}" are both given: leave one of them out')
    if click is not None:
        place = _read_place(click, "first_click")
        return start_state(rows, cols, mines=mines, first_click=place)
    layout = mined_layout(rows, cols, mines)
    if layout.mines.bit_count() == rows * cols:
        raise PuzzleError(
            f"the board has no safe cell in {_extent(rows, cols)}: leave one without a mine"
        )
    state = MinesweeperState(
        layout=layout,
        revealed=_read_cells(revealed, "revealed", rows=rows, cols=cols),
        flags=0 if flags is None else _read_cells(flags, "flags", rows=rows, cols=cols),
    )
    _check_cells(state)
    return state


def shown(value: object) -> str:
    """Return a JSON value in a few characters."""
    if value is None:
        return "missing or null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _read_size(request: dict[str, Any], key: str) -> int:
    size = request.get(key)
    # A JSON true would pass for the integer 1.
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_CELLS:
        raise PuzzleError(f'"{key}" is {shown(size)}: give a number from 1 to {MAX_CELLS}')
    return size


def _read_mines(request: dict[str, Any], *, rows: int, cols: int) -> list[tuple[int, int]]:
    mines = request.get("mines")
    if not isinstance(mines, list):
        raise PuzzleError(f'"mines" is {shown(mines)}: give a list of [row, column]')
    if len(mines) > rows * cols:
        raise PuzzleError(
            f"the board has {len(mines)} mines and only {rows * cols} cells, in "
            f"{_extent(rows, cols)}: leave at least one cell without a mine"
        )
    return [_read_place(mine, f"mine {number}") for number, mine in enumerate(mines)]


def _read_place(value: object, name: str) -> tuple[int, int]:
    match value:
        case [int(row), int(col)] if not (isinstance(row, bool) or isinstance(col, bool)):
            if max(abs(row), abs(col)) <= MAX_CELLS:
                return row, col
            raise PuzzleError(f"{name} is [{shown(row)}, {shown(col)}]: that is on no board")
        case [row, col]:
            found = f"[{shown(row)}, {shown(col)}]"
        case [*values]:
            found = f"a list of {len(values)}"
        case _:
            found = shown(value)
    raise PuzzleError(f"{name} is {found}: give its [row, column] as two integers")


def _read_cells(value: object, name: str, *, rows: int, cols: int) -> int:
    """Return a set of cells from one text of 0 and 1 a row."""
    if not isinstance(value, list):
        raise PuzzleError(f'"{name}" is {shown(value)}: give a list of rows of 0 and 1')
    if len(value) != rows:
        raise PuzzleError(
            f'"{name}" has {len(value)} rows, it is too short or too long at row '
            f"{min(len(value), rows)}, column 0: give {rows} rows of {cols}"
        )
    for row, line in enumerate(value):
        if not isinstance(line, str):
            raise PuzzleError(f'row {row} of "{name}" is {shown(line)}: give a text of 0 and 1')
        unknown = line.strip("01")
        if unknown:
            raise PuzzleError(
                f'unknown symbol {unknown[0]!r} in "{name}" at row {row}, column '
                f"{line.index(unknown[0])}: use only 0 and 1"
            )
        if len(line) != cols:
            raise PuzzleError(
                f'"{name}" is too short or too long at row {row}, column {min(len(line), cols)}: '
                f"the row has {len(line)} cells; give {cols}"
            )
    # Cell 0 is the lowest bit.
    return int("".join(value)[::-1], 2)


def _check_cells(state: MinesweeperState) -> None:
    """Raise PuzzleError for a flag on an open cell, or a second mine that was hit."""
    cols = state.layout.cols
    flagged = state.revealed & state.flags
    if flagged:
        raise PuzzleError(
            f"the flag at {_first_place(flagged, cols)} is on a revealed cell: take it away"
        )
    hit = state.revealed & state.layout.mines
    if hit & (hit - 1):
        raise PuzzleError(
            f"a second revealed mine at {_first_place(hit & (hit - 1), cols)}: the first ends the "
            "game, so keep one"
        )


def _first_place(cells: int, cols: int) -> str:
    """Return row and column of the first of some cells."""
    cell = (cells & -cells).bit_length() - 1
    return f"row {cell // cols}, column {cell % cols}"


def _extent(rows: int, cols: int) -> str:
    return f"rows 0 to {rows - 1}, columns 0 to {cols - 1}"


MAX_LINE_BYTES = 1 << 20
"""A longer line is refused unread: no board of any game comes near."""
MAX_BOARD_CELLS = 10_000
"""A larger board is refused: up to here each cost takes a second or two at worst, or is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRequest:
    """What one line asks about."""

    game: str
    state: Any
    """Any: each game has a state type of its own."""


def read_request(line: bytes) -> SolveRequest:
    """Return the state that one line asks about.

    Args:
        line: without its line break.

    Raises:
        PuzzleError: the line is no JSON object, of no game, or its board is broken or too large.
        ConfigError: the game was added by a package that is broken.
    """
    return state_of(_read_object(line))


def state_of(request: dict[str, Any]) -> SolveRequest:
    """Return the state that a JSON object asks about. Any: its values are not checked yet.

    Raises:
        PuzzleError: it is of no game, or its board is broken or too large.
        ConfigError: the game was added by a package that is broken.
    """
    name = request.get("game")
    if not isinstance(name, str) or name not in game_names():
        raise PuzzleError(
            f'"game" is {shown(name)}, which is not available here: use one of '
            f"{', '.join(game_names())}"
        )
    form = _FORMS.get(name)
    given = [key for key in form.keys if request.get(key) is not None] if form else []
    if form is None or not given:
        state = get_game(name).decode(_read_board(request, form))
    elif request.get("board") is not None:
        raise PuzzleError(f'"board" and "{given[0]}" are both given: leave one of them out')
    else:
        state = form.read(request)
    return SolveRequest(game=name, state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the boards of a game can be written beside ``board``."""

    keys: tuple[str, ...]
    read: Callable[[dict[str, Any]], Any]
    """Return the state that a JSON object describes. Any: its values are not checked yet."""


_FORMS = {"minesweeper": _Form(keys=MINEFIELD_KEYS, read=read_minefield)}


def _read_object(line: bytes) -> dict[str, Any]:
    """Return the line as a JSON object. Any: its values are not checked yet."""
    if len(line) > MAX_LINE_BYTES:
        raise PuzzleError(f"the line is longer than {MAX_LINE_BYTES} bytes: use a smaller board")
    if not line.strip():
        raise PuzzleError("the line is empty: give one JSON object a line")
    try:
        found = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PuzzleError(f"the line is not UTF-8 text at byte {error.start}: re-save it") from None
    except json.JSONDecodeError as error:
        raise PuzzleError(
            f"the line is not JSON at column {error.colno}: {error.msg}; give one object a line"
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        raise PuzzleError("the line is too deeply nested or holds too long a number") from None
    if not isinstance(found, dict):
        raise PuzzleError(f"the line is {shown(found)}, not a JSON object in braces")
    return found


def _read_board(request: dict[str, Any], other: _Form | None) -> str:
    """Return the board as ``Game.decode`` reads it: one text as it is, or rows joined.

    Raises:
        PuzzleError: it is missing, neither a text nor a list of texts, or has more than
            ``MAX_BOARD_CELLS``.
    """
    board = request.get("board")
    if board is None:
        keys = f", or {', '.join(other.keys)}" if other else ""
        raise PuzzleError(f'"board" is missing: give one text or a list of rows{keys}')
    if isinstance(board, str):
        _check_num_cells(len(board) - board.count("\n"))
        return board
    if not isinstance(board, list):
        raise PuzzleError(f'"board" is {shown(board)}: give one text or a list of rows')
    for number, row in enumerate(board):
        if not isinstance(row, str):
            raise PuzzleError(f"row {number} of the board is {shown(row)}: give a text")
        if "\n" in row:
            raise PuzzleError(
                f"unknown symbol {chr(10)!r} at row {number}, column {row.index(chr(10))}: give "
                "each row as a text of its own"
            )
    _check_num_cells(sum(map(len, board)))
    # With a line break at the end, an empty last row stays a row and is found ragged.
    return "\n".join([*board, ""])


def _check_num_cells(num_cells: int) -> None:
    if num_cells > MAX_BOARD_CELLS:
        raise PuzzleError(f"the board has {num_cells} cells, more than {MAX_BOARD_CELLS}: use less")
