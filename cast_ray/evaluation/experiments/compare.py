"""What came of sweeps, as small tables that can be kept, and drawn again from themselves alone.

The tables that a comparison is made of: read from sweeps' runs, or as they were recorded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.experiments.arms import (
    TIERS,
    TRAINING,
    arms_of,
    climbs,
    played_tiers,
    race,
)
from cast_ray.evaluation.experiments.collect import RUN_SCHEMA, run_values, swept_runs
from cast_ray.evaluation.experiments.plots import comparison_tables, draw_comparison
from cast_ray.files import refusals_named, written_aside
from cast_ray.runs.run_directory import RunDirectory

CURVES_FILE, RUNS = "curves.parquet", "runs.parquet"
TRAINING_FILE, TIERS_FILE, CEILING_FILE = "training.parquet", "tiers.parquet", "ceiling.parquet"
CEILING_SCHEMA = pl.Schema(
    {"values": pl.String, "success": pl.Float64, "attempts": pl.Int32, "code": pl.String}
)
"""Of a run that took no step: how far its start model got on the held-out boards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All that a comparison is made of."""

    curves: pl.DataFrame
    """``CURVES``."""
    runs: pl.DataFrame
    """A row a run."""
    training: pl.DataFrame
    """``TRAINING``, of the runs whose steps were recorded."""
    tiers: pl.DataFrame | None
    """``TIERS``, where the arms' models were evaluated."""
    ceiling: pl.DataFrame | None
    """One row: how well the student plays that was taught by good play alone."""

    def by_file(self) -> dict[str, pl.DataFrame]:
        """Return the tables that there are, by the names of their files."""
        files = {CURVES_FILE: self.curves, RUNS: self.runs}
        others = {
            TRAINING_FILE: None if self.training.is_empty() else self.training,
            TIERS_FILE: self.tiers,
            CEILING_FILE: self.ceiling,
        }
        return files | {name: table for name, table in others.items() if table is not None}


def read_tables(
    folders: Sequence[Path],
    *,
    only: Sequence[str] = (),
    evaluation: Path | None = None,
    ceiling: Path | None = None,
) -> Tables:
    """Return the tables of sweeps and of recorded comparisons, those of several one below another.

    Args:
        folders: of sweeps, or with ``curves.parquet`` and ``runs.parquet``.
        only: the arms that are wanted, in their order; empty = all.
        evaluation: what ``cast-ray eval`` wrote of the arms' models; None = as recorded.
        ceiling: directory of a run that took no step; None = as recorded.

    Raises:
        ConfigError: two folders hold the same seed of the same arm, or both an evaluation or a
            ceiling; an arm is wanted that is in none; or the ceiling's run took steps.
        RunDirectoryError: a folder holds neither, or there is no evaluation.
    """
    parts = [_recorded(one) if (one / CURVES_FILE).is_file() else _swept(one) for one in folders]
    owners: dict[tuple[str, int], Path] = {}
    for folder, part in zip(folders, parts, strict=True):
        for arm, seed in part.runs.select("arm", "seed").iter_rows():
            if (arm, seed) in owners:
                raise ConfigError(
                    f"{arm}, seed {seed} is in {owners[arm, seed]} and in {folder}: leave one out"
                )
            owners[arm, seed] = folder
    if not owners:
        raise RunDirectoryError(f"{folders[0]} holds no finished run of a sweep")
    tiers = [part.tiers for part in parts] if evaluation is None else [_tiers(evaluation)]
    ceilings = [part.ceiling for part in parts] if ceiling is None else [_ceiling(ceiling)]
    whole = Tables(
        curves=pl.concat([part.curves for part in parts]),
        runs=pl.concat([part.runs for part in parts]),
        training=pl.concat([part.training for part in parts]),
        tiers=_sole(tiers, "evaluation"),
        ceiling=_sole(ceilings, "ceiling"),
    )
    return _of_arms(whole, only) if only else whole


def _of_arms(tables: Tables, only: Sequence[str]) -> Tables:
    """Return these arms in this order, and of the tiers what is no arm, such as the start model."""
    known = tables.runs["arm"].unique(maintain_order=True).to_list()
    for arm in only:
        require_arm(arm, known)

    def ordered(table: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([table.filter(pl.col("arm") == arm) for arm in dict.fromkeys(only)])

    left_out = set(known) - set(only)
    return dataclasses.replace(
        tables,
        curves=ordered(tables.curves),
        runs=ordered(tables.runs),
        training=ordered(tables.training),
        tiers=None if tables.tiers is None else tables.tiers.filter(~pl.col("arm").is_in(left_out)),
    )


def require_arm(arm: str, known: Iterable[str]) -> None:
    """See that an arm is there.

    Raises:
        ConfigError: it is not; the message names those that are.
    """
    if arm not in known:
        raise ConfigError(f"no arm is called {arm!r}; there are {', '.join(known)}")


def _sole(tables: Sequence[pl.DataFrame | None], what: str) -> pl.DataFrame | None:
    known = [table for table in tables if table is not None]
    if len(known) > 1:
        raise ConfigError(f"more than one folder holds a recorded {what}: give --{what}, for all")
    return known[0] if known else None


def _recorded(folder: Path) -> Tables:
    def table(name: str) -> pl.DataFrame | None:
        return pl.read_parquet(folder / name) if (folder / name).is_file() else None

    runs, steps = table(RUNS), table(TRAINING_FILE)
    if runs is None:
        raise RunDirectoryError(f"{folder} holds {CURVES_FILE} but no {RUNS}")
    return Tables(
        curves=pl.read_parquet(folder / CURVES_FILE),
        runs=pl.concat([pl.DataFrame(schema=RUN_SCHEMA), runs], how="diagonal"),
        training=pl.DataFrame(schema=TRAINING) if steps is None else steps,
        tiers=table(TIERS_FILE),
        ceiling=table(CEILING_FILE),
    )


def _swept(folder: Path) -> Tables:
    curves, runs, training = swept_runs(folder)
    return Tables(curves=curves, runs=runs, training=training, tiers=None, ceiling=None)


def _ceiling(path: Path) -> pl.DataFrame:
    run = RunDirectory(path)
    if not run.summary.is_file():
        raise RunDirectoryError(f"{path} is no run that has ended: it has no {run.summary.name}")
    summary = json.loads(run.summary.read_text())
    if summary["steps"]:
        raise ConfigError(f"{path} took {summary['steps']} steps: a ceiling is a run with steps=0")
    # The same model played before and after no step: both count.
    played = [summary["before"], summary["after"]]
    attempts = sum(one["n"] for one in played)
    row = {
        "values": run_values(run, run),
        "success": sum(one["success"] * one["n"] for one in played) / attempts,
        "attempts": attempts,
        "code": summary.get("code"),
    }
    return pl.DataFrame([row], schema=CEILING_SCHEMA)


def _tiers(evaluation: Path) -> pl.DataFrame:
    """Return ``TIERS`` of the attempts of an evaluation."""
    file = evaluation / "attempts.parquet"
    if not file.is_file():
        raise RunDirectoryError(f"{evaluation} is no evaluation that has ended: no {file.name}")
    attempts = pl.read_parquet(file).with_columns(
        board=pl.col("puzzle_id").rank("dense").over("game", "tier") - 1
    )
    return (
        attempts.group_by(
            pl.col("model").alias("arm"), "run", "game", "tier", "board", maintain_order=True
        )
        .agg(attempts=pl.len(), solved=pl.col("is_success").sum())
        .cast(TIERS)
    )


def compare(
    folders: Sequence[Path],
    *,
    baseline: str,
    out: Path,
    only: Sequence[str] = (),
    evaluation: Path | None = None,
    ceiling: Path | None = None,
) -> str:
    """Write tables, picture and Markdown of sweeps beside each other; return the Markdown.

    Args:
        folders: of sweeps, or such as an earlier comparison wrote: one of those alone is drawn
            again.
        baseline: the arm that all others are held against.
        out: gets ``curves.parquet``, ``runs.parquet``, ``comparison.svg`` and
            ``comparison.md``, and ``training.parquet`` of the runs whose steps are known.
        only: the arms that are compared, in their order; empty = all.
        evaluation: what ``cast-ray eval`` wrote of the arms' models; ``out`` then gets
            ``tiers.parquet``, too.
        ceiling: directory of a run that took no step, whose start model shows how well the student
            can play; ``out`` then gets ``ceiling.parquet``, too.

    Raises:
        ConfigError: there is no such arm; runs were validated differently; a run is in two folders;
            or the ceiling's run took steps.
        RunDirectoryError: a folder holds neither, or there is no evaluation or ceiling.
        EnvironmentSetupError: the file system refused something.
    """
    tables = read_tables(folders, only=only, evaluation=evaluation, ceiling=ceiling)
    arms = arms_of(tables.curves)
    by_name = {arm.name: arm for arm in arms}
    require_arm(baseline, by_name)
    races = [
        race(*pair)
        for arm in arms
        if arm.name != baseline
        for pair in ((arm, by_name[baseline]), (by_name[baseline], arm))
    ]
    played = [] if tables.tiers is None else played_tiers(tables.tiers)
    reached = None if tables.ceiling is None else float(tables.ceiling["success"][0])
    text = comparison_tables(
        arms,
        tables.runs,
        races,
        played,
        ways=climbs(arms, by_name[baseline]),
        training=tables.training,
        ceiling=reached,
    )
    with refusals_named(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.by_file().items():
        with written_aside(out / name) as aside:
            table.write_parquet(aside)
    draw_comparison(arms, tables.runs, out / "comparison.svg", baseline=baseline, ceiling=reached)
    with written_aside(out / "comparison.md") as aside:
        aside.write_text(text)
    return text
