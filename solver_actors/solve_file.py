"""Costs of states from a file of JSON lines or of boards, one answer each, in the same order.

A broken line or board is answered with an error and does not stop the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from cast_ray.errors import CastRayError, PuzzleError
from cast_ray.files import refusals_named, written_aside
from cast_ray.games import get_game
from cast_ray.games.collections.files import read_board_files
from cast_ray.games.costs import json_cost
from cast_ray.games.json_state import MAX_LINE_BYTES, SolveRequest, parse_request, request_of
from cast_ray.games.text import BoardText
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.solve import Solution, solution_of

_DASH = Path("-")
_CACHE_BYTES = 256 << 20
_BATCH_LINES = 1 << 14
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """One line or board."""

    ask: Callable[[], SolveRequest]
    """Raises CastRayError if it is broken."""
    about: dict[str, Any] = field(default_factory=dict)
    """What the answer repeats. Any: goes into JSON."""


def solve_file(
    input_path: Path,
    output_path: Path,
    *,
    with_q: bool = False,
    with_line: bool = False,
    game: str = "",
) -> int:
    """Answer every line or board of a file and return the number of bad ones.

    The output appears by rename when it is complete and replaces an existing file. An output that
    is no ordinary file (a terminal, a pipe, a link) is written in batches.

    Args:
        input_path: one JSON object per line, in a form that ``parse_request`` knows; with ``game``
            anything that ``read_board_files`` reads. ``-`` = standard input.
        output_path: gets one object per line: ``cost``, ``best`` and what else is wanted; ``error``
            for a bad line; ``place`` and ``title`` of a board. ``-`` = standard output.
        with_q: also answer with the cost after each scored action that is no ``Game.is_mark``.
        with_line: also answer with the solver's actions to the goal.
        game: of the boards; empty = the input is JSON lines.

    Raises:
        PuzzleError: the input cannot be read, or has no board.
        ConfigError: there is no such game.
        EnvironmentSetupError: the output cannot be written.
    """
    given = Path("/dev/stdin") if input_path == _DASH else input_path
    batches = _boards(given, game) if game else _json_lines(given)
    first = next(batches)  # raises if there is nothing to read: then nothing is written
    oracle = Oracle(max_bytes=_CACHE_BYTES)
    num_bad = 0
    with _opened(output_path) as output:
        for batch in chain([first], batches):
            for answer in _answers(batch, oracle, with_q=with_q, with_line=with_line):
                num_bad += "error" in answer
                output.write(json.dumps(answer) + "\n")
    return num_bad


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if path == _DASH:
        yield sys.stdout
        return
    written = written_aside if _is_ordinary(path) else refusals_named
    with written(path) as place, place.open("w", encoding="ascii") as output:
        yield output


def _is_ordinary(path: Path) -> bool:
    """Return whether a rename may put a file there; it would replace the link ``/dev/stdout``."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def _boards(path: Path, game: str) -> Iterator[list[_Question]]:
    """Yield the boards of a file or directory, with their places and titles."""
    rules = get_game(game)

    def question(board: BoardText) -> _Question:
        about = {"place": board.place} | ({"title": board.title} if board.title else {})
        return _Question(ask=partial(request_of, rules, board), about=about)

    boards = read_board_files(path, rules)
    while batch := [question(board) for board in islice(boards, _BATCH_LINES)]:
        yield batch


def _json_lines(path: Path) -> Iterator[list[_Question]]:
    try:
        source = path.open("rb")
    except OSError as error:
        raise PuzzleError(
            f"{path} cannot be read ({error.strerror}): give a file of JSON lines"
        ) from None
    with source:
        for batch in _batches(source):
            yield [_Question(ask=partial(parse_request, line)) for line in batch]


def _batches(source: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in bounded lists, long enough to hold most states of a puzzle together."""
    batch: list[bytes] = []
    num_bytes = 0
    for line in _lines(source):
        batch.append(line)
        num_bytes += len(line)
        if len(batch) == _BATCH_LINES or num_bytes > _BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    yield batch


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines without their line break, those that are too long cut off after the limit."""
    while line := source.readline(MAX_LINE_BYTES + 1):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(MAX_LINE_BYTES)
        yield line.removesuffix(b"\n")


def _answers(
    questions: list[_Question], oracle: Oracle, *, with_q: bool, with_line: bool
) -> list[dict[str, Any]]:
    """Return one answer per question, in their order. Any: goes into JSON.

    States of one layout are solved together, because a table may take much of the cache.
    """
    answers = [dict(question.about) for question in questions]
    alike: dict[Hashable, list[tuple[int, SolveRequest]]] = {}
    for number, question in enumerate(questions):
        try:
            request = question.ask()
            entry = get_solver_entry(request.game)
            key = request.view or (request.game, entry.layout_key(request.state))
        except CastRayError as error:
            answers[number]["error"] = str(error)
        else:
            alike.setdefault(key, []).append((number, request))
    for number, request in chain.from_iterable(alike.values()):
        try:
            found = solution_of(request, oracle, with_costs_after=with_q, with_line=with_line)
        except CastRayError as error:
            answers[number]["error"] = str(error)
        else:
            answers[number] |= _answer(found, with_q=with_q, with_line=with_line)
    return answers


def _answer(found: Solution, *, with_q: bool, with_line: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"cost": json_cost(found.cost), "best": found.best_action}
    if found.mine_probabilities is not None:
        return answer | {"mine_probabilities": found.mine_probabilities}
    if with_q:
        answer["q"] = {action: json_cost(cost) for action, cost in found.costs_after.items()}
    if with_line:
        answer["line"] = found.line
    return answer
