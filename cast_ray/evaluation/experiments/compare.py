"""``cast-ray compare``: the runs of sweeps as small tables, and from these a plot and Markdown.

The tables can be kept, as docs/evidence does; they give the same plot and Markdown again.
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
from cast_ray.evaluation.experiments.collect import run_values, swept_runs
from cast_ray.evaluation.experiments.plots import comparison_tables, draw_comparison
from cast_ray.files import refusals_named, written_aside
from cast_ray.runs.run_directory import RunDirectory

CURVES_FILE, RUNS = "curves.parquet", "runs.parquet"
TRAINING_FILE, TIERS_FILE, CEILING_FILE = "training.parquet", "tiers.parquet", "ceiling.parquet"
CEILING_SCHEMA = pl.Schema(
    {"values": pl.String, "success": pl.Float64, "attempts": pl.Int32, "code": pl.String}
)
"""Held-out result of the start model of a run without steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a comparison."""

    curves: pl.DataFrame
    """``CURVES``."""
    runs: pl.DataFrame
    """``RUN_SCHEMA``."""
    training: pl.DataFrame
    """``TRAINING`` of the runs whose steps are recorded."""
    tiers: pl.DataFrame | None
    """``TIERS``, if the arms' models were evaluated."""
    ceiling: pl.DataFrame | None
    """One row: the result of a policy that was taught by good play alone."""

    def by_file(self) -> dict[str, pl.DataFrame]:
        """Return the existing tables by file name."""
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
    """Return the tables of sweeps and recorded comparisons, concatenated.

    Args:
        folders: of sweeps, or of recorded comparisons.
        only: arms to keep, in this order; empty = all.
        evaluation: directory of ``cast-ray eval`` with the arms' models; None = as recorded.
        ceiling: directory of a run without steps; None = as recorded.

    Raises:
        ConfigError: two folders hold the same seed of an arm, or both an evaluation or a ceiling;
            no folder has an arm of ``only``; or the run of the ceiling took steps.
        RunDirectoryError: a folder holds neither, or there is no evaluation.
    """
    parts = [_recorded(one) if (one / CURVES_FILE).is_file() else _swept(one) for one in folders]
    owners: dict[tuple[str, int], Path] = {}
    for folder, part in zip(folders, parts, strict=True):
        for arm, seed in part.runs.select("arm", "seed").iter_rows():
            if (arm, seed) in owners:
                raise ConfigError(
                    f"{arm}, seed {seed} is in both {owners[arm, seed]} and {folder}: leave one out"
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
    """Keep these arms in this order, and models that are no arm, such as the start model."""
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
    """Raise ConfigError unless ``arm`` is one of the known arms."""
    known = list(known)
    if arm not in known:
        raise ConfigError(f"there is no arm {arm!r}; the arms are {', '.join(known)}")


def _sole(tables: Sequence[pl.DataFrame | None], what: str) -> pl.DataFrame | None:
    known = [table for table in tables if table is not None]
    if len(known) > 1:
        raise ConfigError(f"several folders hold a recorded {what}: give one for all with --{what}")
    return known[0] if known else None


def _recorded(folder: Path) -> Tables:
    def table(name: str) -> pl.DataFrame | None:
        return pl.read_parquet(folder / name) if (folder / name).is_file() else None

    runs, steps = table(RUNS), table(TRAINING_FILE)
    if runs is None:
        raise RunDirectoryError(f"{folder} holds {CURVES_FILE} but no {RUNS}")
    return Tables(
        curves=pl.read_parquet(folder / CURVES_FILE),
        runs=runs,
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
        raise RunDirectoryError(f"{path} is not a finished run: it has no {run.summary.name}")
    summary = json.loads(run.summary.read_text())
    if summary["steps"]:
        raise ConfigError(
            f"{path} took {summary['steps']} steps: give a run with steps=0 as --ceiling"
        )
    # Without steps, before and after are results of the same model.
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
        raise RunDirectoryError(f"{evaluation} is not a finished evaluation: it has no {file.name}")
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
    """Write the tables, plot and Markdown of a comparison of sweeps; return the Markdown.

    Args:
        folders: of sweeps or of earlier comparisons.
        baseline: the arm to compare all others with.
        out: folder of ``curves.parquet``, ``runs.parquet``, ``comparison.svg`` and
            ``comparison.md``, and of the other tables where they are known.
        only: arms to compare, in this order; empty = all.
        evaluation: directory of ``cast-ray eval`` with the arms' models, for ``tiers.parquet``.
        ceiling: directory of a run without steps, whose start model shows how well the policy can
            play, for ``ceiling.parquet``.

    Raises:
        ConfigError, RunDirectoryError: as ``read_tables``; or there is no arm ``baseline``, or runs
            were validated differently.
        EnvironmentSetupError: a file cannot be written.
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
