"""Columns and rows of a step's file, and nothing else of it: the tokens are most of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cast_ray.errors import TrajectoryError
from cast_ray.trajectory import BATCH_SCHEMA

_PER_TURN = (
    "answers", "actions", "turn_starts", "turn_ends", "shifted_advantages", "solver_advantages",
    "step_advantages", "turn_advantages",
)  # fmt: skip
_PER_STATE = ("states", "cost_to_go", "cost_status")
_KEY = ("group", "episode", "attempt")


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of all rows. Any: rows as Arrow hands them out.

    Args:
        path: of a table of ``BATCH_SCHEMA``.
        columns: ``effects`` among them.

    Raises:
        TrajectoryError: the file is broken, of another version, or contradicts itself.
    """
    with _opened(path, columns) as file:
        return _checked(path, _read(path, file, None, columns))


def read_row(
    path: Path, columns: Sequence[str], *, group: int, episode: int, attempt: int | None
) -> dict[str, Any] | None:
    """Return some columns of one row; None where there is none. Any: as Arrow hands it out.

    Only the part of the file that holds it is read (a row group), and of other parts the keys.

    Args:
        path: of a table of ``BATCH_SCHEMA``.
        columns: ``effects`` among them.
        group: of the trajectory.
        episode: likewise.
        attempt: likewise; None = the last.

    Raises:
        TrajectoryError: as ``read_rows``.
    """
    with _opened(path, [*columns, *_KEY]) as file:
        found: tuple[int, int, int] | None = None  # attempt, row group, row in it
        for part in range(file.num_row_groups):
            keys = _read(path, file, part, _KEY).to_pylist()
            for row, key in enumerate(keys):
                if (key["group"], key["episode"]) != (group, episode):
                    continue
                is_wanted = attempt in (None, key["attempt"])
                if is_wanted and (found is None or key["attempt"] > found[0]):
                    found = (key["attempt"], part, row)
        if found is None:
            return None
        _, part, row = found
        return _checked(path, _read(path, file, part, columns).slice(row, 1))[0]


def _opened(path: Path, columns: Sequence[str]) -> pq.ParquetFile:
    """Return the file, whose columns are those of this version."""
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from None
    for name in columns:
        index = file.schema_arrow.get_field_index(name)
        if index < 0 or file.schema_arrow.field(index).type != BATCH_SCHEMA.field(name).type:
            raise TrajectoryError(
                f"{path.name} has no column {name} as this version writes it: it was written by "
                "another one"
            )
    return file


def _read(path: Path, file: pq.ParquetFile, part: int | None, columns: Sequence[str]) -> pa.Table:
    names = list(columns)
    try:
        return file.read(columns=names) if part is None else file.read_row_group(part, names)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from None


def _checked(path: Path, table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows; raise TrajectoryError if a list is null or has another length."""
    rows = table.to_pylist()
    for row in rows:
        num_turns = None if row["effects"] is None else len(row["effects"])
        sizes = dict.fromkeys(_PER_TURN, num_turns)
        sizes |= dict.fromkeys(_PER_STATE, -1 if num_turns is None else num_turns + 1)
        for name, value in row.items():
            is_short = name in sizes and value is not None and len(value) != sizes[name]
            if value is None or is_short:
                raise TrajectoryError(
                    f"{path.name}: {name} of group {row.get('group')}, episode "
                    f"{row.get('episode')} does not fit its turns; `cast-ray replay` says more"
                )
    return rows


def _broken(path: Path, error: Exception) -> TrajectoryError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return TrajectoryError(f"{path.name} cannot be read ({reason}): put it back")
