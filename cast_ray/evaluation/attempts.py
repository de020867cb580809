"""Evaluated attempts as data: one row per attempt at a puzzle.

Models behind an engine or an endpoint and built-in players fill the same columns, so that one table
holds all of them. Letter: ``T`` turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.errors import TrajectoryError
from cast_ray.files import written_aside
from cast_ray.games.costs import status_of, stored_cost
from cast_ray.rollout.trajectory import check_schema, costs_of


def _column(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


ATTEMPT_SCHEMA = pa.schema(
    [
        _column("model", pa.string()),
        _column("run", pa.int32()),
        _column("game", pa.string()),
        _column("tier", pa.string()),
        _column("puzzle_id", pa.string()),
        _column("puzzle", pa.string()),
        _column("group", pa.int32()),
        _column("attempt", pa.int32()),
        _column("seed", pa.int64()),
        _column("turn_budget", pa.int32()),
        _column("answers", pa.list_(pa.string())),
        _column("actions", pa.list_(pa.string())),
        _column("effects", pa.list_(pa.string())),
        _column("states", pa.list_(pa.string())),
        _column("reward", pa.float64()),
        _column("is_success", pa.bool_()),
        _column("end_reason", pa.string()),
        _column("cost_to_go", pa.list_(pa.int32())),
        _column("cost_status", pa.list_(pa.string())),
        _column("excess_risks", pa.list_(pa.float64())),
        _column("safe_reveals", pa.list_(pa.bool_())),
        _column("answer_tokens", pa.list_(pa.int32())),
        _column("prompt_tokens", pa.int64(), nullable=True),
        _column("price_usd", pa.float64(), nullable=True),
        _column("num_retries", pa.int32()),
        _column("seconds", pa.float64()),
    ]
)
"""``run``: number of the model's run directory, from 0, if several are averaged. ``group``: number
of the puzzle in its set. ``states``, ``cost_to_go``, ``cost_status``: ``[T + 1]``, the cost is null
unless the status is ``exact``. ``excess_risks``, ``safe_reveals``: ``[T]``, Minesweeper only, null
for actions other than reveals. ``answer_tokens``: ``[T]``, null if not counted; ``prompt_tokens``:
of all requests together, null if not counted; ``price_usd``: null without prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a puzzle; fields are the columns of ``ATTEMPT_SCHEMA``."""

    model: str
    run: int
    game: str
    tier: str
    puzzle_id: str
    puzzle: str
    group: int
    attempt: int
    seed: int
    turn_budget: int
    answers: tuple[str, ...]
    """``[T]``."""
    actions: tuple[str, ...]
    """``[T]`` canonical spelling, empty if the answer has no action."""
    effects: tuple[str, ...]
    """``[T]`` values of ``Effect``."""
    states: tuple[str, ...]
    """``[T + 1]``."""
    reward: float
    """In [0, 1]."""
    is_success: bool
    end_reason: str
    costs: tuple[float, ...]
    """``[T + 1]`` N (Minesweeper: K); inf = infinite, NaN = unknown."""
    excess_risks: tuple[float | None, ...]
    """``[T]`` probability of a mine in the revealed cell minus that of the safest cell."""
    safe_reveals: tuple[bool | None, ...]
    """``[T]`` whether the revealed cell was provably safe."""
    answer_tokens: tuple[int | None, ...]
    """``[T]``; None if not counted."""
    prompt_tokens: int | None
    price_usd: float | None
    num_retries: int
    """Number of repeated requests."""
    seconds: float


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


def attempts_of(table: pa.Table) -> list[Attempt]:
    """Return the rows of a table as ``to_attempt_table`` took them."""
    check_schema(table, ATTEMPT_SCHEMA)
    found: list[Attempt] = []
    for row in table.to_pylist():
        costs = tuple(costs_of(row).tolist())
        del row["cost_to_go"], row["cost_status"]
        lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
        found.append(Attempt(**(row | lists), costs=costs))
    return found


def write_attempts(path: Path, attempts: Iterable[Attempt]) -> None:
    """Write a file of attempts atomically."""
    with written_aside(path, durable=True) as aside:
        pq.write_table(to_attempt_table(attempts), aside)


def read_attempts(path: Path) -> list[Attempt]:
    """Read the attempts of a file.

    Raises:
        TrajectoryError: it is missing, damaged, or has other columns.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TrajectoryError(f"{path} holds no attempts: {str(error).splitlines()[0]}") from None
    return attempts_of(table)
