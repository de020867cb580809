"""Collects the finished runs of a sweep as rows of a comparison's tables."""

from __future__ import annotations

import itertools
import logging
import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cast_ray.config.load import PRESET_KEYS, load_config
from cast_ray.config.reference import config_values
from cast_ray.errors import RunDirectoryError
from cast_ray.evaluation.experiments.arms import CURVES, TRAINING
from cast_ray.evaluation.experiments.sweep_plan import ARM, SweepNote, trial_name
from cast_ray.files import faults_named, read_record
from cast_ray.games.turn_quality import turn_regrets
from cast_ray.parquet import read_frame, read_table
from cast_ray.rollout.trajectory import costs_of
from cast_ray.runs.metrics import read_metrics, read_validation
from cast_ray.runs.model_files import model_digest, model_fault
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.oracle import Oracle
from solver_actors.scoring import Scorer

_LOG = logging.getLogger(__name__)
_ORACLE_BYTES = 2**28
RUN_SCHEMA = pl.Schema(
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
        "start": pl.String,
    }
)
"""``values``: the configuration values that differ from the defaults, as ``key=value``, quoted as
in a shell.
``regret``: mean per turn on held-out boards after training: moves lost; in Minesweeper the excess
probability of a mine in the revealed cell over the safest one.
``solver_of_…``: the solver's share of the time of a turn without the model, of a trajectory with
it, and of a step if nothing ran in parallel.
``code``: version of cast_ray and a checksum of its sources; null if unknown.
``start``: digest of the model that training began with; null if unknown."""


def swept_runs(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return a sweep's validation (``CURVES``), runs (``RUN_SCHEMA``) and steps (``TRAINING``).

    Raises:
        RunDirectoryError: the folder holds no sweep, or a run without validation.
    """
    found = finished_runs(folder)
    start = RunDirectory(folder / "start")
    rows = [_run_row(arm, seed, run, run_values(run, start)) for arm, seed, run in found]
    curves = [pl.DataFrame(schema=CURVES), *(_curve(*one) for one in found)]
    steps = [
        {"arm": arm, "seed": seed, **asdict(step)}
        for arm, seed, run in found
        for step in read_metrics(run.metrics)
    ]
    return (
        pl.concat(curves),
        pl.DataFrame(rows, schema=RUN_SCHEMA),
        pl.DataFrame(steps, schema=TRAINING),
    )


def finished_runs(folder: Path) -> list[tuple[str, int, RunDirectory]]:
    """Return arm, seed and directory of every finished run of a sweep."""
    note = folder / "sweep.json"
    if not note.is_file():
        raise RunDirectoryError(
            f"{folder} is neither a sweep ({note.name}) nor a comparison (runs.parquet)"
        )
    grid = read_record(note, SweepNote)["grid"]
    found = []
    for values in itertools.product(*grid.values()):
        own = dict(zip(grid, values, strict=True))
        run = RunDirectory(folder / "trials" / trial_name(own))
        with faults_named(note):  # no folder can have such a name
            is_finished = run.summary.is_file()
        if not is_finished:
            _LOG.warning("%s is left out: it has no summary.json, so it has not ended", run.path)
        else:
            words = [v if k == ARM else f"{k}={v}" for k, v in own.items() if k != "seed"]
            arm = ", ".join(words) or "all"
            found.append((arm, load_config(run.config, [], is_stored=True).seed, run))
    return found


def _curve(arm: str, seed: int, run: RunDirectory) -> pl.DataFrame:
    rows = read_validation(run.validation)
    if rows.is_empty():
        raise RunDirectoryError(
            f"{run.path} was not validated: train it with evaluation.every above 0"
        )
    return rows.select(
        arm=pl.lit(arm),
        seed=pl.lit(seed),
        step="step",
        board=pl.col("puzzle_id").rank("dense") - 1,
        attempts="attempts",
        solved="solved",
    ).cast(CURVES)


def _start(run: RunDirectory) -> str | None:
    if load_config(run.config, [], is_stored=True).warm_start.steps:
        return None if model_fault(run.start_model) else model_digest(run.start_model)
    models = read_record(run.models, dict[str, str]) if run.models.is_file() else {}
    return models.get("policy.path")


def _run_row(arm: str, seed: int, run: RunDirectory, values: str) -> dict[str, Any]:
    summary = run.read_summary()
    if not (summary.get("before") and summary.get("after")):
        raise RunDirectoryError(f"{run.path} has no held-out results before and after training")
    steps = read_metrics(run.metrics)
    timed = [one for one in steps if not one.is_replayed]  # replayed steps took no rollouts
    if not timed:
        raise RunDirectoryError(f"{run.path} took no steps: train it with steps above 0")
    solver = math.fsum(one.seconds_solver for one in timed)
    files = [run.trajectory_file(one.step) for one in timed]
    played = pl.concat(
        [read_frame(file, ["seconds_environment", "seconds_generation"]) for file in files]
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
        "start": _start(run),
    }


def run_values(run: RunDirectory, start: RunDirectory) -> str:
    """Return the configuration values of a run that differ from the defaults.

    If the sweep made a start model, its warm start is in the configuration of ``start``; the
    model's path is then left out.
    """
    own, usual = (
        dict(config_values(load_config(file, [], is_stored=True))) for file in (run.config, None)
    )
    if start.config.is_file():
        taught = dict(config_values(load_config(start.config, [], is_stored=True)))
        own |= {
            k: v for k, v in taught.items() if k.startswith("warm_start.") or k == "policy.path"
        }
    # A preset would override a default value that is not given explicitly.
    implied = dict(
        config_values(load_config(None, [f"{word}={own[word]}" for word in PRESET_KEYS]))
    )
    left_out = ("run_dir", "seed", "value_net.path")
    return shlex.join(
        f"{k}={v}"
        for k, v in own.items()
        if k not in left_out and (v != usual[k] or v != implied[k])
    )


def _regret(run: RunDirectory) -> float | None:
    columns = ["game", "cost_to_go", "cost_status", "effects", "states", "actions"]
    rows = read_table(run.evaluations / "after.parquet", columns).to_pylist()
    scorer = Scorer(Oracle(max_bytes=_ORACLE_BYTES))
    regrets = [
        regret
        for row in rows
        for regret in (
            *turn_regrets(costs_of(row).tolist(), row["effects"], game=row["game"]),
            *scorer.risks(row["game"], row["states"], row["actions"], row["effects"]).excess,
        )
        if regret is not None
    ]
    return float(np.mean(regrets)) if regrets else None
