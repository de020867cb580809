"""``cast-ray compare``: the runs of sweeps as small tables, and from these a plot and Markdown.

The tables can be kept, as docs/evidence does; they give the same plot and Markdown again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.experiments.arms import TIERS, arms_of, climbs, gap, played_tiers, race
from cast_ray.evaluation.experiments.collect import run_values, swept_runs
from cast_ray.evaluation.experiments.plots import comparison_tables, draw_comparison
from cast_ray.files import write_text
from cast_ray.parquet import read_frame, write_frame
from cast_ray.runs.run_directory import RunDirectory

CURVES_FILE, RUNS = "curves.parquet", "runs.parquet"
TRAINING_FILE, TIERS_FILE, CEILING_FILE = "training.parquet", "tiers.parquet", "ceiling.parquet"
CEILING_SCHEMA = pl.Schema(
    {"values": pl.String, "success": pl.Float64, "attempts": pl.Int32, "code": pl.String}
)
"""Held-out result of the start model of a run without steps."""


Tables = Mapping[str, pl.DataFrame]
"""The tables of a comparison by file name. Always there: ``CURVES_FILE`` (``CURVES``) and ``RUNS``
(``RUN_SCHEMA``). Where they are known: ``TRAINING_FILE`` (``TRAINING`` of the runs whose steps are
recorded), ``TIERS_FILE`` (``TIERS`` of the arms' models) and ``CEILING_FILE`` (``CEILING_SCHEMA``,
one row: the result of a policy that was taught by good play alone)."""


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
        for arm, seed in part[RUNS].select("arm", "seed").iter_rows():
            if (arm, seed) in owners:
                raise ConfigError(
                    f"{arm}, seed {seed} is in both {owners[arm, seed]} and {folder}: leave one out"
                )
            owners[arm, seed] = folder
    if not owners:
        raise RunDirectoryError(f"{folders[0]} holds no finished run of a sweep")
    whole = {
        name: pl.concat([part[name] for part in parts if name in part], how="diagonal")
        for name in (CURVES_FILE, RUNS, TRAINING_FILE)
        if any(name in part for part in parts)
    }
    if evaluation is not None:
        whole[TIERS_FILE] = _tiers(evaluation)
    if ceiling is not None:
        whole[CEILING_FILE] = _ceiling(ceiling)
    for name, what in ((TIERS_FILE, "evaluation"), (CEILING_FILE, "ceiling")):
        recorded = [part[name] for part in parts if name in part and name not in whole]
        if len(recorded) > 1:
            raise ConfigError(f"several folders hold a recorded {what}: give one with --{what}")
        if recorded:
            whole[name] = recorded[0]
    return _of_arms(whole, only) if only else whole


def _of_arms(tables: Tables, only: Sequence[str]) -> Tables:
    """Keep these arms in this order, and models that are no arm, such as the start model."""
    known = tables[RUNS]["arm"].unique(maintain_order=True).to_list()
    for arm in only:
        require_arm(arm, known)
    chosen = dict(tables)
    for name in (CURVES_FILE, RUNS, TRAINING_FILE):
        if name in tables:
            of_arms = [tables[name].filter(pl.col("arm") == arm) for arm in dict.fromkeys(only)]
            chosen[name] = pl.concat(of_arms)
    if TIERS_FILE in tables:
        left_out = set(known) - set(only)
        chosen[TIERS_FILE] = tables[TIERS_FILE].filter(~pl.col("arm").is_in(left_out))
    return chosen


def require_arm(arm: str, known: Iterable[str]) -> None:
    """Raise ConfigError unless ``arm`` is one of the known arms."""
    known = list(known)
    if arm not in known:
        raise ConfigError(f"there is no arm {arm!r}; the arms are {', '.join(known)}")


def _recorded(folder: Path) -> Tables:
    if not (folder / RUNS).is_file():
        raise RunDirectoryError(f"{folder} holds {CURVES_FILE} but no {RUNS}")
    names = (CURVES_FILE, RUNS, TRAINING_FILE, TIERS_FILE, CEILING_FILE)
    return {name: read_frame(folder / name) for name in names if (folder / name).is_file()}


def _swept(folder: Path) -> Tables:
    return dict(zip((CURVES_FILE, RUNS, TRAINING_FILE), swept_runs(folder), strict=True))


def _ceiling(path: Path) -> pl.DataFrame:
    run = RunDirectory(path)
    if not run.summary.is_file():
        raise RunDirectoryError(f"{path} is not a finished run: it has no {run.summary.name}")
    summary = run.read_summary()
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
    attempts = read_frame(file).with_columns(
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
    runs, training = tables[RUNS], tables.get(TRAINING_FILE)
    arms = arms_of(tables[CURVES_FILE])
    by_name = {arm.name: arm for arm in arms}
    require_arm(baseline, by_name)
    races = [
        race(*pair)
        for arm in arms
        if arm.name != baseline
        for pair in ((arm, by_name[baseline]), (by_name[baseline], arm))
    ]
    played = played_tiers(tables[TIERS_FILE]) if TIERS_FILE in tables else []
    reached = float(tables[CEILING_FILE]["success"][0]) if CEILING_FILE in tables else None
    gaps = [gap(arm, by_name[baseline]) for arm in arms if arm.name != baseline]
    text = comparison_tables(
        arms,
        runs,
        races,
        played,
        gaps=gaps,
        ways=climbs(arms, by_name[baseline]),
        training=training,
        ceiling=reached,
    )
    starts = runs.group_by("seed").agg(pl.col("^start$").drop_nulls().n_unique())
    if mixed := sorted(row[0] for row in starts.iter_rows() if max(row[1:], default=0) > 1):
        seeds = ", ".join(map(str, mixed))
        text += f"\n**Not only the values differ: other start models at seed {seeds}.**\n"
    for name, table in tables.items():
        if not table.is_empty():
            write_frame(out / name, table)
    file = out / "comparison.svg"
    draw_comparison(arms, runs, file, baseline=baseline, gaps=gaps, ceiling=reached)
    write_text(out / "comparison.md", text)
    return text
