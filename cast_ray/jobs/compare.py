"""What came of sweeps, as small tables that can be kept, and drawn again from themselves alone."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from cast_ray.comparison import CURVES, TIERS, arms_of, played_tiers, race
from cast_ray.config_file import load_config
from cast_ray.config_reference import config_values
from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.files import refusals_named, written_aside
from cast_ray.jobs.sweep_plan import ARM
from cast_ray.metrics import read_metrics
from cast_ray.play_quality import turn_regrets
from cast_ray.report.arms import comparison_tables, draw_comparison
from cast_ray.run_directory import RunDirectory
from cast_ray.trajectory import costs_of
from cast_ray.validation_log import read_validation
from solver_actors.judge import Judge
from solver_actors.oracle import Oracle

_ORACLE_BYTES = 2**28
CURVES_FILE, RUNS, TIERS_FILE = "curves.parquet", "runs.parquet", "tiers.parquet"
_RUN_SCHEMA = pl.Schema(
    {
        "arm": pl.String,
        "seed": pl.Int32,
        "values": pl.String,
        "steps": pl.Int32,
        "before": pl.Float64,
        "after": pl.Float64,
        "attempts": pl.Int32,
        "regret": pl.Float64,
        "solver_of_turn": pl.Float64,
        "solver_of_trajectory": pl.Float64,
        "solver_of_step": pl.Float64,
        "seconds_step": pl.Float64,
        "seconds": pl.Float64,
    }
)
"""``values``: what the run's configuration says that the defaults do not, as ``key=value``, quoted
as in a shell.
``regret``: a turn, on held-out boards after training: moves wasted; in Minesweeper how much
likelier a mine was in the revealed cell than in the safest one, by what was open.
``solver_of_…``: the solver's share of a turn without the model, of a trajectory with it, and of a
step as if nothing ran beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """All that a comparison is made of; ``tiers`` where its models were evaluated."""

    curves: pl.DataFrame
    runs: pl.DataFrame
    tiers: pl.DataFrame | None

    def by_file(self) -> dict[str, pl.DataFrame]:
        files = {CURVES_FILE: self.curves, RUNS: self.runs}
        return files if self.tiers is None else files | {TIERS_FILE: self.tiers}


def compare(
    folders: Sequence[Path], *, baseline: str, out: Path, evaluation: Path | None = None
) -> str:
    """Write tables, picture and Markdown of sweeps beside each other; return the Markdown.

    Args:
        folders: of sweeps; or one that an earlier comparison wrote, which is drawn again.
        baseline: the arm that all others are held against.
        out: gets ``curves.parquet``, ``runs.parquet``, ``comparison.svg`` and ``comparison.md``.
        evaluation: what ``cast-ray eval`` wrote of the arms' models; ``out`` then gets
            ``tiers.parquet``, too.

    Raises:
        ConfigError: there is no such arm, or runs were validated differently.
        RunDirectoryError: a folder holds neither, or there is no evaluation.
        EnvironmentSetupError: the file system refused something.
    """
    tables = _tables(folders, evaluation)
    arms = arms_of(tables.curves)
    by_name = {arm.name: arm for arm in arms}
    if baseline not in by_name:
        raise ConfigError(f"no arm is called {baseline!r}; there are {', '.join(by_name)}")
    races = [
        race(*pair)
        for arm in arms
        if arm.name != baseline
        for pair in ((arm, by_name[baseline]), (by_name[baseline], arm))
    ]
    played = [] if tables.tiers is None else played_tiers(tables.tiers)
    text = comparison_tables(arms, tables.runs, races, played)
    with refusals_named(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.by_file().items():
        with written_aside(out / name) as aside:
            table.write_parquet(aside)
    draw_comparison(arms, tables.runs, out / "comparison.svg")
    with written_aside(out / "comparison.md") as aside:
        aside.write_text(text)
    return text


def _tables(folders: Sequence[Path], evaluation: Path | None) -> _Tables:
    first = folders[0]
    tiers = None if evaluation is None else _tiers(evaluation)
    if len(folders) == 1 and (first / CURVES_FILE).is_file():
        if tiers is None and (first / TIERS_FILE).is_file():
            tiers = pl.read_parquet(first / TIERS_FILE)
        curves, runs = (pl.read_parquet(first / name) for name in (CURVES_FILE, RUNS))
        return _Tables(curves=curves, runs=runs, tiers=tiers)
    curves, runs, owners = [], [], {}
    for folder in folders:
        for arm, seed, run in _finished(folder):
            if (arm, seed) in owners:
                raise ConfigError(
                    f"{arm}, seed {seed} is in {owners[arm, seed]} and in {folder}: leave one out"
                )
            owners[arm, seed] = folder
            curves.append(_curve(arm, seed, run))
            values = _values(run, RunDirectory(folder / "start"))
            runs.append(_run_row(arm, seed, run, values))
    if not runs:
        raise RunDirectoryError(f"{first} holds no finished run of a sweep")
    return _Tables(
        curves=pl.concat(curves), runs=pl.DataFrame(runs, schema=_RUN_SCHEMA), tiers=tiers
    )


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


def _finished(folder: Path) -> list[tuple[str, int, RunDirectory]]:
    """Return arm, seed and directory of every run of a sweep that has ended."""
    results = folder / "results.parquet"
    if not results.is_file():
        raise RunDirectoryError(f"{folder} is no sweep that has ended: it has no results.parquet")
    said = json.loads((folder / "sweep.json").read_text())
    keys = [key for key in said["grid"] if key != "seed"]
    found = []
    for row in pl.read_parquet(results).iter_rows(named=True):
        run = RunDirectory(folder / "trials" / row["name"])
        if row["failure"] is None and run.summary.is_file():
            arm = ", ".join(row[k] if k == ARM else f"{k}={row[k]}" for k in keys) or "all"
            found.append((arm, load_config(run.config, []).seed, run))
    return found


def _curve(arm: str, seed: int, run: RunDirectory) -> pl.DataFrame:
    rows = read_validation(run.validation)
    if rows.is_empty():
        raise RunDirectoryError(
            f"{run.path} was not validated: train with evaluation.every above 0"
        )
    return rows.select(
        arm=pl.lit(arm),
        seed=pl.lit(seed),
        step="step",
        board=pl.col("puzzle_id").rank("dense") - 1,
        attempts="attempts",
        solved="solved",
    ).cast(CURVES)


def _run_row(arm: str, seed: int, run: RunDirectory, values: str) -> dict[str, Any]:
    summary = json.loads(run.summary.read_text())
    steps = read_metrics(run.metrics)
    timed = [one for one in steps if not one.is_replayed]  # the others cost no play
    if not timed:
        raise RunDirectoryError(f"{run.path} took no step: give steps above 0")
    solver = math.fsum(one.seconds_solver for one in timed)
    files = [run.trajectory_file(one.step) for one in timed]
    played = pl.concat(
        [
            pl.DataFrame(pq.read_table(file, columns=["seconds_environment", "seconds_generation"]))
            for file in files
        ]
    ).sum()
    rules, model = (float(played[name].item()) for name in played.columns)
    total = math.fsum(one.seconds_total for one in timed)
    return {
        "arm": arm,
        "seed": seed,
        "values": values,
        "steps": len(steps),
        "before": summary["before"]["success"],
        "after": summary["after"]["success"],
        "attempts": summary["after"]["n"],
        "regret": _regret(run),
        "solver_of_turn": solver / (solver + rules),
        "solver_of_trajectory": solver / (solver + rules + model),
        "solver_of_step": solver / total,
        "seconds_step": total / len(timed),
        "seconds": summary["seconds"],
    }


def _values(run: RunDirectory, start: RunDirectory) -> str:
    """Return what a run's configuration says that the defaults do not, paths left out.

    How its start model was taught stands in the configuration of the run that all others begin
    with, if the sweep had one.
    """
    own, usual = (dict(config_values(load_config(file, []))) for file in (run.config, None))
    if start.config.is_file():
        taught = dict(config_values(load_config(start.config, [])))
        own |= {key: value for key, value in taught.items() if key.startswith("warm_start.")}
    left_out = ("run_dir", "seed", "policy.path", "value_net.path")
    return shlex.join(f"{k}={v}" for k, v in own.items() if v != usual[k] and k not in left_out)


def _regret(run: RunDirectory) -> float | None:
    columns = ["game", "cost_to_go", "cost_status", "effects", "states", "actions"]
    rows = pq.read_table(run.evaluations / "after.parquet", columns=columns).to_pylist()
    judge = Judge(Oracle(max_bytes=_ORACLE_BYTES))
    regrets = [
        regret
        for row in rows
        for regret in (
            *turn_regrets(costs_of(row).tolist(), row["effects"], game=row["game"]),
            *judge.risks(row["game"], row["states"], row["actions"], row["effects"]).excess,
        )
        if regret is not None
    ]
    return float(np.mean(regrets)) if regrets else None
