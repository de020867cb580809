"""``cast-ray sweep``: runs the trials of a plan with Ray Tune.

A trial is an ``Algorithm`` that does the whole job of ``cast-ray train`` in a run directory of its
own. It reserves nothing itself: the run's parts do. All trials have the same start model. Tune
restarts a trial that dies, and the same command resumes an interrupted sweep. Either way a run
resumes from its directory, and finished runs are not repeated.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from rich.console import Console

from cast_ray.cluster.placement import parts_of, reserved_cpus, wait_for_places
from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import CastRayError, EnvironmentSetupError, RunDirectoryError, RunInterrupted
from cast_ray.evaluation.experiments.sweep_plan import SweepNote, SweepPlan
from cast_ray.evaluation.experiments.sweep_results import results_table, write_results
from cast_ray.files import is_taken, read_record, refusals_named, written_aside
from cast_ray.runs.metrics import read_metrics
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.algorithm.algorithm import Algorithm
from cast_ray.training.algorithm.callbacks import Callbacks
from cast_ray.training.algorithm.config import AlgorithmConfig
from cast_ray.training.train import begin, finish

_RESTARTS = 3
"""Of a trial that dies."""


class SweepTrial(Algorithm):
    """One run from its first evaluation to its report; ``train`` takes a step of it."""

    def setup(self, config: dict[str, Any]) -> None:
        """Wait for the first step.

        Args:
            config: ``trial`` has ``values``, the run's configuration, and ``directory``, the user's
                working directory.
        """
        job = config["trial"]
        if Path(job["directory"]).is_dir():  # another node may lack it
            os.chdir(job["directory"])
        self._started = time.perf_counter()
        self._callbacks = Callbacks()
        self._config = AlgorithmConfig.from_dict(job["values"]).validate()
        self._run = RunDirectory(Path(self._config.run_dir))
        self._opening = {"resume": self._run.config.is_file(), "lost_at": None}
        log = open(f"{self._run.path}.log", "a")  # noqa: SIM115, open as long as this process
        self._progress = TrainProgress(Console(file=log, width=120))

    def step(self) -> dict[str, Any]:
        """Take a step; the result of one that would fail again says ``failure`` and ``done``.

        Raises:
            RunInterrupted: a part was lost; Tune starts the trial again.
        """
        try:
            return self._next()
        except RunInterrupted:
            raise
        except CastRayError as error:
            return {"done": True, "failure": str(error)}

    def _next(self) -> dict[str, Any]:
        if self._run.has_finished(self._config.steps):
            self._run.compare_config(self._config, moved=self._config.models)  # refuses others
            rows = read_metrics(self._run.metrics) if self._run.metrics.is_file() else []
            return {"done": True, "cast_ray": asdict(rows[-1]) if rows else {"step": 0}}
        begin(self)
        result = super().step() if self.steps_done < self._config.steps else {"done": True}
        if result["done"]:
            finish(self, seconds=time.perf_counter() - self._started)
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing: the run directory is the checkpoint."""


def run_sweep(
    plan: SweepPlan,
    *,
    file: Path | None,
    out: Path,
    at_once: int = 0,
    trial: type[tune.Trainable] = SweepTrial,
) -> dict[str, str]:
    """Run the trials of a sweep; return the reasons of failures by name.

    Args:
        plan: the trials.
        file: the configuration file of all trials; None = the quickstart's values.
        out: the sweep's folder, for ``results.parquet`` and ``results.svg``. An existing sweep is
            resumed, also with more values.
        at_once: number of concurrent trials; 0 = as many as the cluster's CPUs and GPUs allow.
        trial: runs one.

    Raises:
        RunDirectoryError: the folder holds something else.
        EnvironmentSetupError: the cluster is too small for one trial, or every trial failed.
        KeyboardInterrupt: Ctrl-C; the results so far are written.
    """
    _begin(plan, out)
    with ray_session(num_cpus=reserved_cpus(plan.base) * max(at_once, 1)):
        wait_for_places(plan.base, say=print)
        together = at_once or trials_that_fit(plan.base, ray.cluster_resources())
        start = _warm_start(plan, file, out, trial) if plan.needs_warm_start else []
        configs = {
            one.name: _config(file, [*plan.fixed, *one.overrides, *start], out, one.name)
            for one in plan.trials
        }
        failures = _run_trials(configs, out, together, trial)
    write_results(plan.trials, results_table(plan.trials, out / "trials", failures), out)
    if len(failures) == len(plan.trials):
        raise EnvironmentSetupError(
            f"every trial failed; the first: {next(iter(failures.values()))}"
        )
    # Tune returns normally after Ctrl-C; missing trials show that it was interrupted.
    names = [one.name for one in plan.trials if one.name not in failures]
    if not all(RunDirectory(out / "trials" / name).summary.is_file() for name in names):
        raise KeyboardInterrupt
    return failures


def _config(file: Path | None, overrides: list[str], out: Path, name: str) -> TrainConfig:
    folder = out.absolute() / "trials"
    return replace(load_config(file, overrides), run_dir=str(folder / name))


def trials_that_fit(config: TrainConfig, cluster: Mapping[str, float]) -> int:
    """Return how many runs of a configuration can begin in a cluster at once.

    Raises:
        EnvironmentSetupError: none.
    """
    gpus = sum(part.count * part.bundle.get("GPU", 0) for part in parts_of(config.resources))
    wanted = {"CPU": reserved_cpus(config), "GPU": gpus}
    fits = [int(cluster.get(name, 0) // number) for name, number in wanted.items() if number]
    if min(fits) < 1:
        has = ", ".join(f"{cluster.get(name, 0):g} {name}s" for name in wanted)
        needs = ", ".join(f"{number:g} {name}s" for name, number in wanted.items())
        raise EnvironmentSetupError(
            f"a trial needs {needs} and the cluster has {has}: add nodes, or lower "
            "resources.engines or resources.learner_ranks"
        )
    return min(fits)


def _begin(plan: SweepPlan, out: Path) -> None:
    """Create the sweep's folder, or check that it is of this sweep or of a part of it."""
    note = out / "sweep.json"
    if note.is_file():
        if not plan.extends(read_record(note, SweepNote)):
            raise RunDirectoryError(
                f"{out} holds another sweep: give another --out, or add values to its swept keys"
            )
    elif is_taken(out):
        raise RunDirectoryError(f"{out} exists and is not an empty folder: give another --out")
    with refusals_named(out):
        (out / "trials").mkdir(parents=True, exist_ok=True)
        with written_aside(note) as aside:
            aside.write_text(json.dumps(plan.given, indent=2) + "\n")


def _warm_start(
    plan: SweepPlan, file: Path | None, out: Path, trial: type[tune.Trainable]
) -> list[str]:
    """Teach the start model of all trials; return the overrides that make them use it."""
    run = RunDirectory(out.absolute() / "start")
    # Not evaluated: each trial evaluates the same model before its first step.
    quick = ["steps=0", "evaluation.every=0", "evaluation.held_out_attempts=1"]
    config = load_config(file, [*plan.fixed, *quick, f"run_dir={run.path}"])
    teacher = trial({"trial": _job("start", config)})
    try:
        if failure := teacher.train().get("failure"):
            raise EnvironmentSetupError(f"the warm start of all trials failed: {failure}")
    finally:
        teacher.stop()
    return [f"policy.path={run.start_model}", "warm_start.steps=0"]


def _run_trials(
    configs: Mapping[str, TrainConfig], out: Path, at_once: int, trial: type[tune.Trainable]
) -> dict[str, str]:
    """Run the unfinished trials; return the reasons of failures by name."""
    search = tune.Tuner(
        trial,
        param_space={"trial": tune.grid_search([_job(*each) for each in configs.items()])},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=at_once,
            trial_dirname_creator=_name_of,
            trial_name_creator=_name_of,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(out.absolute()),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=_RESTARTS),
            callbacks=[_Progress(len(configs))],
        ),
    )
    failures = {}
    for result in search.fit():
        reason = (result.metrics or {}).get("failure")
        if result.error is not None:
            reason = str(result.error).strip().splitlines()[-1]
        if reason:
            failures[Path(result.path).name] = reason  # a trial without result has no config
    return failures


def _job(name: str, config: TrainConfig) -> dict[str, Any]:
    return {"name": name, "values": asdict(config), "directory": str(Path.cwd())}


def _name_of(trial: Any) -> str:
    return trial.config["trial"]["name"]


class _Progress(tune.Callback):
    """Prints a line when a trial starts, makes a step and ends."""

    def __init__(self, num_trials: int) -> None:
        self._num_trials, self._num_ended = num_trials, 0

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(trial, "started")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        row = result.get("cast_ray", {})
        if "success" in row:
            self._say(trial, f"step {row['step']}, {row['success']:.1%} solved")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(trial, "failed" if "failure" in trial.last_result else "finished", num_ended=1)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(trial, "failed", num_ended=1)

    def _say(self, trial: Any, what: str, *, num_ended: int = 0) -> None:
        self._num_ended += num_ended
        print(f"[{self._num_ended}/{self._num_trials}] {_name_of(trial)} {what}", flush=True)
