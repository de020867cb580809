"""The tables that a comparison is made of: read from sweeps' runs, or as they were recorded."""

from __future__ import annotations

import itertools
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

from cast_ray.comparison import CURVES, TIERS
from cast_ray.config_file import load_config
from cast_ray.config_reference import config_values
from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.jobs.sweep_plan import ARM, trial_name
from cast_ray.metrics import read_metrics
from cast_ray.play_quality import turn_regrets
from cast_ray.run_directory import RunDirectory
from cast_ray.trajectory import costs_of
from cast_ray.validation_log import read_validation
from solver_actors.judge import Judge
from solver_actors.oracle import Oracle

_ORACLE_BYTES = 2**28
CURVES_FILE, RUNS = "curves.parquet", "runs.parquet"
TIERS_FILE, CEILING_FILE = "tiers.parquet", "ceiling.parquet"
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
        "code": pl.String,
    }
)
"""``values``: what the run's configuration says that the defaults do not, as ``key=value``, quoted
as in a shell.
``regret``: a turn, on held-out boards after training: moves wasted; in Minesweeper how much
likelier a mine was in the revealed cell than in the safest one, by what was open.
``solver_of_…``: the solver's share of a turn without the model, of a trajectory with it, and of a
step as if nothing ran beside it.
``code``: the version of cast_ray and a checksum of its text; null = recorded before it was kept."""


_CEILING_SCHEMA = pl.Schema(
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
    tiers: pl.DataFrame | None
    """``TIERS``, where the arms' models were evaluated."""
    ceiling: pl.DataFrame | None
    """One row: how well the student plays that was taught by good play alone."""

    def by_file(self) -> dict[str, pl.DataFrame]:
        """Return the tables that there are, by the names of their files."""
        files = {CURVES_FILE: self.curves, RUNS: self.runs}
        others = {TIERS_FILE: self.tiers, CEILING_FILE: self.ceiling}
        return files | {name: table for name, table in others.items() if table is not None}


def read_tables(
    folders: Sequence[Path], *, evaluation: Path | None = None, ceiling: Path | None = None
) -> Tables:
    """Return the tables of sweeps and of recorded comparisons, those of several one below another.

    Args:
        folders: of sweeps, or with ``curves.parquet`` and ``runs.parquet``.
        evaluation: what ``cast-ray eval`` wrote of the arms' models; None = as recorded.
        ceiling: directory of a run that took no step; None = as recorded.

    Raises:
        ConfigError: two folders hold the same seed of the same arm, or both an evaluation or a
            ceiling; or the ceiling's run took steps.
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
    return Tables(
        curves=pl.concat([part.curves for part in parts]),
        runs=pl.concat([part.runs for part in parts]),
        tiers=_only(tiers, "evaluation"),
        ceiling=_only(ceilings, "ceiling"),
    )


def _only(tables: Sequence[pl.DataFrame | None], what: str) -> pl.DataFrame | None:
    known = [table for table in tables if table is not None]
    if len(known) > 1:
        raise ConfigError(f"more than one folder holds a recorded {what}: give --{what}, for all")
    return known[0] if known else None


def _recorded(folder: Path) -> Tables:
    def table(name: str) -> pl.DataFrame | None:
        return pl.read_parquet(folder / name) if (folder / name).is_file() else None

    runs = table(RUNS)
    if runs is None:
        raise RunDirectoryError(f"{folder} holds {CURVES_FILE} but no {RUNS}")
    return Tables(
        curves=pl.read_parquet(folder / CURVES_FILE),
        runs=pl.concat([pl.DataFrame(schema=_RUN_SCHEMA), runs], how="diagonal"),
        tiers=table(TIERS_FILE),
        ceiling=table(CEILING_FILE),
    )


def _swept(folder: Path) -> Tables:
    found = _finished(folder)
    start = RunDirectory(folder / "start")
    rows = [_run_row(arm, seed, run, _values(run, start)) for arm, seed, run in found]
    curves = [pl.DataFrame(schema=CURVES), *(_curve(*one) for one in found)]
    return Tables(
        curves=pl.concat(curves),
        runs=pl.DataFrame(rows, schema=_RUN_SCHEMA),
        tiers=None,
        ceiling=None,
    )


def _ceiling(path: Path) -> pl.DataFrame:
    run = RunDirectory(path)
    if not run.summary.is_file():
        raise RunDirectoryError(f"{path} is no run that has ended: it has no {run.summary.name}")
    summary = json.loads(run.summary.read_text())
    if summary["steps"]:
        raise ConfigError(f"{path} took {summary['steps']} steps: a ceiling is a run with steps=0")
    row = {
        "values": _values(run, run),
        "success": summary["after"]["success"],
        "attempts": summary["after"]["n"],
        "code": summary.get("code"),
    }
    return pl.DataFrame([row], schema=_CEILING_SCHEMA)


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
    """Return arm, seed and directory of every run of a sweep that has ended; others may go on."""
    note = folder / "sweep.json"
    if not note.is_file():
        raise RunDirectoryError(f"{folder} is no sweep: it has no {note.name}")
    grid = json.loads(note.read_text())["grid"]
    found = []
    for values in itertools.product(*grid.values()):
        own = dict(zip(grid, values, strict=True))
        run = RunDirectory(folder / "trials" / trial_name(own))
        if run.summary.is_file():
            words = [v if k == ARM else f"{k}={v}" for k, v in own.items() if k != "seed"]
            arm = ", ".join(words) or "all"
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
        "code": summary.get("code"),
    }


def _values(run: RunDirectory, start: RunDirectory) -> str:
    """Return what a run's configuration says that the defaults do not.

    How its start model was taught stands in the configuration of the run that all others begin
    with, if the sweep had one; the path of that model is then left out.
    """
    own, usual = (dict(config_values(load_config(file, []))) for file in (run.config, None))
    if start.config.is_file():
        taught = dict(config_values(load_config(start.config, [])))
        own |= {
            k: v for k, v in taught.items() if k.startswith("warm_start.") or k == "policy.path"
        }
    left_out = ("run_dir", "seed", "value_net.path")
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
