"""How each validation board did after each validated step: what curves are resampled from."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from cast_ray.files import refusals_named, written_aside

SCHEMA = pl.Schema(
    {"step": pl.Int32, "puzzle_id": pl.String, "attempts": pl.Int32, "solved": pl.Int32}
)
"""Step 0 is the start model's."""


def read_validation(path: Path) -> pl.DataFrame:
    """Return the rows of ``validation.parquet``; none where the file does not exist yet."""
    return pl.read_parquet(path) if path.is_file() else SCHEMA.to_frame()


def keep_validation(path: Path, step: int, table: pa.Table) -> None:
    """Add a validation, in the place of an earlier one of the same step.

    Args:
        path: of ``validation.parquet``.
        step: whose weights played.
        table: ``SCORED_SCHEMA``.

    Raises:
        EnvironmentSetupError: it cannot be written; the older one is still there.
    """
    attempts = pl.DataFrame(
        {"puzzle_id": table["puzzle_id"].to_pylist(), "reward": table["reward"].to_pylist()},
        schema={"puzzle_id": pl.String, "reward": pl.Float64},
    )
    found = attempts.group_by("puzzle_id").agg(
        step=pl.lit(step), attempts=pl.len(), solved=pl.col("reward").sum()
    )
    others = read_validation(path).filter(pl.col("step") != step)
    rows = pl.concat([others, found.select(SCHEMA.names()).cast(SCHEMA)])
    with refusals_named(path), written_aside(path) as aside:
        rows.sort("step", "puzzle_id").write_parquet(aside)
