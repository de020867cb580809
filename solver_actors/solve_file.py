"""Costs of states from a file of JSON lines, one answer per line, in the same order.

A broken line is answered with an error and does not stop the rest.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

from cast_ray.errors import CastRayError, PuzzleError
from cast_ray.files import refusals_named, written_aside
from cast_ray.games.costs import json_cost
from cast_ray.games.json_state import MAX_LINE_BYTES, SolveRequest, parse_request
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.solve import solution_of

_CACHE_BYTES = 256 << 20
_BATCH_LINES = 1 << 14
_BATCH_BYTES = 16 << 20


def solve_file(input_path: Path, output_path: Path, *, with_q: bool) -> int:
    """Answer every line of a file (DESIGN: command line) and return the number of bad lines.

    The output appears by rename when it is complete and replaces an existing file. An output that
    is no ordinary file (a terminal, a pipe, a link) is written in batches.

    Args:
        input_path: one JSON object per line, in a form that ``parse_request`` knows.
        output_path: gets one object per line: ``cost``, ``best`` and, if wanted, ``q``; ``error``
            for a bad line.
        with_q: also answer with the cost after each scored action that is no ``Game.is_mark``.

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
    """Return whether a rename may put a file there; it would replace the link ``/dev/stdout``."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def _solve_lines(source: IO[bytes], output: IO[str], *, with_q: bool) -> int:
    oracle = Oracle(max_bytes=_CACHE_BYTES)
    num_bad = 0
    for lines in _batches(source):
        for answer in _answers(lines, oracle, with_q=with_q):
            num_bad += "error" in answer
            output.write(json.dumps(answer) + "\n")
    return num_bad


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


def _answers(lines: list[bytes], oracle: Oracle, *, with_q: bool) -> list[dict[str, Any]]:
    """Return one answer per line, in their order. Any: goes into JSON.

    Lines of one layout are solved together, because a table may take much of the cache.
    """
    answers: list[dict[str, Any]] = [{} for _ in lines]
    alike: dict[Hashable, list[tuple[int, SolveRequest]]] = {}
    for number, line in enumerate(lines):
        try:
            request = parse_request(line)
            key = (request.game, get_solver_entry(request.game).layout_key(request.state))
        except CastRayError as error:
            answers[number] = {"error": str(error)}
        else:
            alike.setdefault(key, []).append((number, request))
    for number, request in chain.from_iterable(alike.values()):
        try:
            answers[number] = _answer(request, oracle, with_q=with_q)
        except CastRayError as error:
            answers[number] = {"error": str(error)}
    return answers


def _answer(request: SolveRequest, oracle: Oracle, *, with_q: bool) -> dict[str, Any]:
    """Return the answer to one line.

    Raises:
        PuzzleError: the board is too large for the game's solver.
    """
    found = solution_of(request.game, request.state, oracle, with_costs_after=with_q)
    answer: dict[str, Any] = {"cost": json_cost(found.cost), "best": found.best_action}
    if with_q:
        answer["q"] = {action: json_cost(cost) for action, cost in found.costs_after.items()}
    return answer
