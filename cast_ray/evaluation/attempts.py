"""Evaluated attempts as data: one row per attempt at a puzzle.

Models behind an engine or an endpoint and built-in players fill the same columns, so that one table
holds all of them. Letter: ``T`` turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import pyarrow as pa

from cast_ray.games.costs import status_of, stored_cost
from cast_ray.parquet import read_table, write_table
from cast_ray.rollout.trajectory import check_schema, costs_of

_Int32: TypeAlias = Annotated[int, pa.int32()]
_Int64: TypeAlias = Annotated[int, pa.int64()]
_Float64: TypeAlias = Annotated[float, pa.float64()]
_Text: TypeAlias = Annotated[str, pa.string()]
_Texts: TypeAlias = Annotated[tuple[str, ...], pa.list_(pa.string())]
_COST_COLUMNS = (
    pa.field("cost_to_go", pa.list_(pa.int32()), nullable=False),
    pa.field("cost_status", pa.list_(pa.string()), nullable=False),
)
"""How ``costs`` is stored: ``[T + 1]`` each, the cost null unless the status is ``exact``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a puzzle; a field is a column, and its annotation the column's type."""

    model: _Text
    run: _Int32
    """Number of the model's run directory, from 0, if several are averaged."""
    game: _Text
    tier: _Text
    puzzle_id: _Text
    puzzle: _Text
    group: _Int32
    """Number of the puzzle in its set."""
    attempt: _Int32
    seed: _Int64
    turn_budget: _Int32
    answers: _Texts
    """``[T]``."""
    actions: _Texts
    """``[T]`` canonical spelling, empty if the answer has no action."""
    effects: _Texts
    """``[T]`` values of ``Effect``."""
    states: _Texts
    """``[T + 1]``."""
    reward: _Float64
    """In [0, 1]."""
    is_success: Annotated[bool, pa.bool_()]
    end_reason: _Text
    """That of the episode; ``no_answer``: an endpoint gave no usable answer at turn ``T``."""
    costs: tuple[float, ...]
    """``[T + 1]`` N (Minesweeper: K); inf = infinite, NaN = unknown. Stored as two columns."""
    excess_risks: Annotated[tuple[float | None, ...], pa.list_(pa.float64())]
    """``[T]`` probability of a mine in the revealed cell minus that of the safest cell; None for
    actions other than reveals, and in other games than Minesweeper."""
    safe_reveals: Annotated[tuple[bool | None, ...], pa.list_(pa.bool_())]
    """``[T]`` whether the revealed cell was provably safe; None likewise."""
    answer_tokens: Annotated[tuple[int | None, ...], pa.list_(pa.int32())]
    """``[T]``; None if not counted."""
    prompt_tokens: Annotated[int | None, pa.int64()]
    """Of the requests of all answers together; None if not counted."""
    price_usd: Annotated[float | None, pa.float64()]
    """Of ``answers``, like the tokens: no other response has a known price. None without prices."""
    num_retries: _Int32
    """Number of repeated requests."""
    seconds: _Float64
    no_answer_reason: _Text = ""
    """Why the responses could not be used; empty for other end reasons."""


def _columns() -> Iterator[pa.Field]:
    """Yield the columns that the fields of ``Attempt`` are stored in."""
    for name, hint in get_type_hints(Attempt, include_extras=True).items():
        if name == "costs":
            yield from _COST_COLUMNS
        else:
            value, kind = get_args(hint)
            yield pa.field(name, kind, nullable=type(None) in get_args(value))


ATTEMPT_SCHEMA = pa.schema(_columns())


def to_attempt_table(attempts: Iterable[Attempt]) -> pa.Table:
    """Return attempts as a table of ``ATTEMPT_SCHEMA``, in the given order."""
    rows: list[dict[str, Any]] = []  # Any: Arrow takes Python rows
    for attempt in attempts:
        row = asdict(attempt)
        costs = row.pop("costs")
        row["cost_to_go"] = [stored_cost(cost) for cost in costs]
        row["cost_status"] = [status_of(cost) for cost in costs]
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=ATTEMPT_SCHEMA)


def attempts_of(table: pa.Table, *, name: object = "this") -> list[Attempt]:
    """Return the rows of the table ``name`` as ``to_attempt_table`` took them."""
    check_schema(table, ATTEMPT_SCHEMA, name=name)
    found: list[Attempt] = []
    for row in table.to_pylist():
        costs = tuple(costs_of(row).tolist())
        del row["cost_to_go"], row["cost_status"]
        lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
        found.append(Attempt(**(row | lists), costs=costs))
    return found


def write_attempts(path: Path, attempts: Iterable[Attempt]) -> None:
    """Write a file of attempts atomically."""
    write_table(path, to_attempt_table(attempts))


def read_attempts(path: Path) -> list[Attempt]:
    """Read the attempts of a file.

    Raises:
        DamagedFileError: it is missing or damaged.
        TrajectoryError: it has other columns.
    """
    return attempts_of(read_table(path), name=path)
