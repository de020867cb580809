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
from cast_ray.jobs.solve_request import MAX_LINE_BYTES, read_request
from solver_actors.oracle import Oracle

_CACHE_BYTES = 256 << 20


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
        PuzzleError: the line is no request, or its board is too large for the game's solver.
    """
    request = read_request(line)
    state = request.state
    solver = oracle.solver_of(request.game, state)
    answer: dict[str, Any] = {
        "cost": _cost(float(solver.cost_to_go([state])[0])),
        "best": solver.best_action(state),
    }
    if with_q:
        answer["q"] = {action: _cost(c) for action, c in solver.action_costs(state).items()}
    return answer


def _cost(value: float) -> int | str:
    if math.isnan(value):
        return "unknown"
    return "dead" if math.isinf(value) else int(value)
