"""Parse states that are written as JSON: lines of ``cast-ray solve`` and requests of the service.

Keys that a game does not know are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Game
from cast_ray.games.registry import game_names, get_game
from cast_ray.games.text import MAX_BOARD_CELLS, BoardText, shown

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused unread: no board needs nearly as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRequest:
    """The state that one line asks about."""

    game: str
    state: Any
    """Any: each game has a state type of its own. None for a view."""
    view: tuple[tuple[str, ...], int] | None = None
    """What a player sees, by rows, and how many cells are hidden for good (mines)."""


def parse_request(line: bytes) -> SolveRequest:
    """Return the state that one line asks about.

    Args:
        line: without its line break.

    Raises:
        PuzzleError: the line is no JSON object, names no game, or its board is broken or too large.
        ConfigError: the game was added by a package that is broken.
    """
    return parse_state(_read_object(line))


def parse_state(request: dict[str, Any]) -> SolveRequest:
    """Return the state that a JSON object asks about. Any: its values are not checked yet.

    Raises:
        PuzzleError: it names no game, or its board is broken or too large.
        ConfigError: the game was added by a package that is broken.
    """
    name = request.get("game")
    if not isinstance(name, str) or name not in game_names():
        raise PuzzleError(
            f'"game" is {shown(name)}, which is not available here: use one of '
            f"{', '.join(game_names())}"
        )
    game = get_game(name)
    given = [key for key in ("visible", *game.json_keys) if request.get(key) is not None]
    if not given:
        return read_state(game, _read_board(request, game.json_keys))
    if "visible" in given:
        return _read_view(game, request, given[1:])
    if request.get("board") is not None:
        raise PuzzleError(f'"board" and "{given[0]}" are both given: leave one of them out')
    return SolveRequest(game=name, state=game.from_json(request))


def read_state(game: Game[Any], text: str) -> SolveRequest:
    """Return the state that a text describes, in our form or another that the game reads.

    Args:
        game: the rules. Any: each game has a state type of its own.
        text: one board.

    Raises:
        PuzzleError: it is broken.
    """
    text = text.removeprefix("\ufeff")
    try:
        return SolveRequest(game=game.name, state=game.decode(text))
    except PuzzleError as error:
        boards = list(game.read_boards(text))
        if len(boards) > 1 and not any(board.fault for board in boards):
            raise PuzzleError(f"the text holds {len(boards)} boards: give one") from None
        rows = text.removesuffix("\n").split("\n")
        is_ours = set(game.symbols).issuperset("".join(rows))
        if len(boards) != 1 or (is_ours and not all(rows)):
            raise
        # In our own form nothing is made up for a row that is too short.
        if is_ours and len(boards[0].text.replace("\n", "")) > sum(map(len, rows)):
            raise
        try:
            return request_of(game, boards[0])
        except PuzzleError as other:
            raise (error if is_ours else other) from None


def request_of(game: Game[Any], board: BoardText) -> SolveRequest:
    """Return the state or view of a file's board.

    Raises:
        PuzzleError: it is broken.
    """
    if board.fault:
        raise PuzzleError(board.fault)
    if board.num_hidden is not None:
        view = (tuple(board.text.split("\n")), board.num_hidden)
        return SolveRequest(game=game.name, state=None, view=view)
    return SolveRequest(game=game.name, state=game.decode(board.text))


def _read_view(game: Game[Any], request: dict[str, Any], others: list[str]) -> SolveRequest:
    if not game.has_hidden_state:
        raise PuzzleError(f'{game.name} hides nothing: give "board" in place of "visible"')
    if others or request.get("board") is not None:
        other = others[0] if others else "board"
        raise PuzzleError(f'"visible" and "{other}" are both given: leave one of them out')
    rows, num_mines = request["visible"], request.get("num_mines")
    if type(num_mines) is not int or num_mines < 0:
        raise PuzzleError(f'"num_mines" is {shown(num_mines)}: give a number with "visible"')
    board = _read_board({"board": rows}, ()).removesuffix("\n")
    return SolveRequest(game=game.name, state=None, view=(tuple(board.split("\n")), num_mines))


def _read_object(line: bytes) -> dict[str, Any]:
    """Return the line as a JSON object. Any: its values are not checked yet."""
    if len(line) > MAX_LINE_BYTES:
        raise PuzzleError(f"the line is longer than {MAX_LINE_BYTES} bytes: use a smaller board")
    if not line.strip():
        raise PuzzleError("the line is empty: give one JSON object per line")
    try:
        found = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PuzzleError(f"the line is not UTF-8 text at byte {error.start}: re-save it") from None
    except json.JSONDecodeError as error:
        raise PuzzleError(
            f"the line is not JSON at column {error.colno}: {error.msg}; give one object per line"
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        raise PuzzleError("the line is too deeply nested or holds too long a number") from None
    if not isinstance(found, dict):
        raise PuzzleError(f"the line is {shown(found)}, not a JSON object in braces")
    return found


def _read_board(request: dict[str, Any], other_keys: tuple[str, ...]) -> str:
    """Return the board as ``Game.decode`` reads it: one text as it is, or rows joined.

    Raises:
        PuzzleError: it is missing, neither a text nor a list of texts, or has more than
            ``MAX_BOARD_CELLS``.
    """
    board = request.get("board")
    if board is None:
        keys = f", or {', '.join(other_keys)}" if other_keys else ""
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
                "each row as a separate text"
            )
    _check_num_cells(sum(map(len, board)))
    # With a line break at the end, an empty last row stays a row and is found ragged.
    return "\n".join([*board, ""])


def _check_num_cells(num_cells: int) -> None:
    if num_cells > MAX_BOARD_CELLS:
        raise PuzzleError(
            f"the board has {num_cells} cells, more than {MAX_BOARD_CELLS}: use fewer"
        )
