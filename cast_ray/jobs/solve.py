"""Costs of states from a file of JSON lines, one answer a line, in the same order.

A line is whatever somebody wrote: broken ones are answered with an error and never stop the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from cast_ray.errors import CastRayError, PuzzleError
from cast_ray.files import refusals_named, written_aside
from cast_ray.games import game_names, get_game
from solver_actors.oracle import Oracle

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused unread: no board of any game comes near."""
MAX_CELLS = 10_000
"""A larger board is refused: up to here each cost takes a second or two at worst, or is unknown."""

_CACHE_BYTES = 256 << 20
_SHOWN_CHARACTERS = 40


def solve_file(input_path: Path, output_path: Path, *, with_q: bool) -> int:
    """Answer every line of a file (DESIGN: command line) and return the number of bad lines.

    The output appears by rename when it is whole; one that exists is replaced. An output that is
    no ordinary file (a terminal, a pipe, a link) is written as the answers come.

    Args:
        input_path: one JSON object a line: ``{"game": "sokoban", "board": ["######", …]}``.
        output_path: gets one object a line: ``cost``, ``best`` and, if wanted, ``q``; ``error``
            for a bad line.
        with_q: also answer with the cost after each scored action.

    Raises:
        PuzzleError: the input cannot be read.
        EnvironmentSetupError: the output cannot be written.
    """
    try:
        source = input_path.open("rb")
    except OSError as error:
        raise PuzzleError(
            f"{input_path} cannot be read ({error.strerror}): give a file of JSON lines"
        ) from None
    written = written_aside if _is_ordinary(output_path) else refusals_named
    with source, written(output_path) as place, place.open("w", encoding="ascii") as output:
        return _solve_lines(source, output, with_q=with_q)


def _is_ordinary(path: Path) -> bool:
    """Return whether a rename may put a file there: over ``/dev/stdout`` it would take the link."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def _solve_lines(source: IO[bytes], output: IO[str], *, with_q: bool) -> int:
    oracle = Oracle(max_bytes=_CACHE_BYTES)
    num_bad = 0
    for line in _lines(source):
        try:
            answer = _solve_line(line, oracle, with_q=with_q)
        except CastRayError as error:
            num_bad += 1
            answer = {"error": str(error)}
        output.write(json.dumps(answer) + "\n")
    return num_bad


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines without their line break, a too long one cut off behind the limit."""
    while line := source.readline(MAX_LINE_BYTES + 1):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(MAX_LINE_BYTES)
        yield line.removesuffix(b"\n")


def _solve_line(line: bytes, oracle: Oracle, *, with_q: bool) -> dict[str, Any]:
    """Return the answer to one line.

    Raises:
        PuzzleError: the line is no JSON object, of no game, or its board is broken or too large.
    """
    request = _read_object(line)
    name = request.get("game")
    if not isinstance(name, str) or name not in game_names():
        raise PuzzleError(
            f'"game" is {_shown(name)}, which is not available here: use one of '
            f"{', '.join(game_names())}"
        )
    board = _read_board(request)
    state = get_game(name).decode(board)
    solver = oracle.solver(name, board)
    answer: dict[str, Any] = {
        "cost": _cost(float(solver.cost_to_go([state])[0])),
        "best": solver.best_action(state),
    }
    if with_q:
        answer["q"] = {action: _cost(c) for action, c in solver.action_costs(state).items()}
    return answer


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
        raise PuzzleError(f"the line is {_shown(found)}, not a JSON object in braces")
    return found


def _read_board(request: dict[str, Any]) -> str:
    """Return the board as ``Game.decode`` reads it.

    Raises:
        PuzzleError: it is missing, no list of texts, or larger than ``MAX_CELLS``.
    """
    if "board" not in request:
        raise PuzzleError('"board" is missing: give a list of rows, each a text')
    rows = request["board"]
    if not isinstance(rows, list):
        raise PuzzleError(f'"board" is {_shown(rows)}: give a list of rows, each a text')
    for number, row in enumerate(rows):
        if not isinstance(row, str):
            raise PuzzleError(f"row {number} of the board is {_shown(row)}: give a text")
        if "\n" in row:
            raise PuzzleError(
                f"unknown symbol {chr(10)!r} at row {number}, column {row.index(chr(10))}: give "
                "each row as a text of its own"
            )
    num_cells = sum(map(len, rows))
    if num_cells > MAX_CELLS:
        raise PuzzleError(f"the board has {num_cells} cells, more than {MAX_CELLS}: use less")
    # With a line break at the end, an empty last row stays a row and is found ragged.
    return "\n".join([*rows, ""])


def _cost(value: float) -> int | str:
    if math.isnan(value):
        return "unknown"
    return "dead" if math.isinf(value) else int(value)


def _shown(value: object) -> str:
    """Return a JSON value in a few characters."""
    if value is None:
        return "missing or null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
