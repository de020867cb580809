"""``cast-ray sweep``: runs the trials of a plan with Ray Tune.

A trial reserves no CPU: it starts ``cast-ray train`` as a process, whose parts reserve what they
need in the same cluster, and waits for it. All trials have the same start model. The same command
resumes an interrupted sweep; finished trials are not repeated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune

from cast_ray.cluster.placement import reserved_cpus, wait_for_places
from cast_ray.cluster.session import ray_session
from cast_ray.config.train import TrainConfig
from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from cast_ray.evaluation.experiments.sweep_plan import SweepPlan
from cast_ray.evaluation.experiments.sweep_results import results_table, write_results
from cast_ray.files import refusals_named, written_aside
from cast_ray.runs.metrics import read_metrics
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.supervisor import ends_with_me, train_command

_LOOK_EVERY_S = 1.0
_END_TIMEOUT_S = 120.0
"""A trial that is asked to stop finishes its step first."""


def run_sweep(
    plan: SweepPlan,
    *,
    file: Path | None,
    out: Path,
    at_once: int = 0,
    command: Sequence[str] | None = None,
) -> dict[str, str]:
    """Run the trials of a sweep; return the reasons of failures by name.

    Args:
        plan: the trials.
        file: the configuration file of all trials; None = the quickstart's values.
        out: the sweep's folder, for ``results.parquet`` and ``results.svg``. An existing sweep is
            resumed, also with more values.
        at_once: number of concurrent trials; 0 = as many as the cluster's CPUs and GPUs allow.
        command: a run's command without its arguments; None = ``cast-ray train``.

    Raises:
        RunDirectoryError: the folder holds something else.
        EnvironmentSetupError: the cluster is too small for one trial, or every trial failed.
        KeyboardInterrupt: Ctrl-C; the results so far are written.
    """
    _begin(plan, out)
    train = train_command(()) if command is None else list(command)
    given = [] if file is None else ["--config", str(file.absolute())]
    with ray_session(num_cpus=reserved_cpus(plan.base) * max(at_once, 1)):
        wait_for_places(plan.base, say=print)
        together = at_once or trials_that_fit(plan.base, ray.cluster_resources())
        address = ray.get_runtime_context().gcs_address
        start = []
        if plan.needs_warm_start:
            start = _warm_start(plan, [*train, *given], out, address=address)
        jobs = {
            trial.name: [
                *train,
                *given,
                *plan.fixed,
                *trial.overrides,
                *start,
                f"run_dir={out / 'trials' / trial.name}",
            ]
            for trial in plan.trials
        }
        failures = _run_trials(jobs, out, together, address=address)
    table = results_table(plan.trials, out / "trials", failures)
    write_results(plan.trials, table, out)
    if len(failures) == len(plan.trials):
        raise EnvironmentSetupError(
            f"every trial failed; the first: {next(iter(failures.values()))}"
        )
    # Tune returns normally after Ctrl-C; missing trials show that it was interrupted.
    names = [trial.name for trial in plan.trials if trial.name not in failures]
    if not all(RunDirectory(out / "trials" / name).summary.is_file() for name in names):
        raise KeyboardInterrupt
    return failures


def trials_that_fit(config: TrainConfig, cluster: Mapping[str, float]) -> int:
    """Return how many runs of a configuration fit into a cluster at once.

    Raises:
        EnvironmentSetupError: none.
    """
    resources = config.resources
    gpus = (
        resources.gpus_per_learner_rank * resources.learner_ranks
        + resources.gpus_per_engine * resources.engines
    )
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
        if not plan.extends(json.loads(note.read_text())):
            raise RunDirectoryError(
                f"{out} holds another sweep: give another --out, or all its values and more"
            )
    elif out.exists() and any(out.iterdir()):
        raise RunDirectoryError(f"{out} is not empty: give another --out")
    with refusals_named(out):
        (out / "trials").mkdir(parents=True, exist_ok=True)
        with written_aside(note) as aside:
            aside.write_text(json.dumps(plan.given, indent=2) + "\n")


def _warm_start(plan: SweepPlan, command: list[str], out: Path, *, address: str) -> list[str]:
    """Teach the start model of all trials; return the overrides that make them use it."""
    run = RunDirectory(out / "start")
    # Not evaluated: each trial evaluates the same model before its first step.
    quick = ["steps=0", "evaluation.every=0", "evaluation.held_out_attempts=1"]
    log = out / "start.log"
    if not run.summary.is_file():
        whole = [*command, *plan.fixed, *quick, f"run_dir={run.path}"]
        if code := _start(whole, log, address=address).wait():
            raise EnvironmentSetupError(
                f"the warm start of all trials ended with exit code {code}: {_last_words(log)}"
            )
    return [f"policy.path={run.start_model.absolute()}", "warm_start.steps=0"]


def _run_trials(
    jobs: Mapping[str, list[str]], out: Path, at_once: int, *, address: str
) -> dict[str, str]:
    """Run the unfinished trials; return the reasons of failures by name."""
    search = tune.Tuner(
        # One byte of memory: Tune requires that a trial reserves something.
        tune.with_resources(_trial, tune.PlacementGroupFactory([{"memory": 1.0}])),
        param_space={
            "name": tune.grid_search(list(jobs)),
            "commands": dict(jobs),
            "log_dir": str((out / "trials").absolute()),
            "directory": str(Path.cwd()),
            "address": address,
        },
        tune_config=tune.TuneConfig(max_concurrent_trials=at_once),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(out.absolute()),
            verbose=0,
            callbacks=[_Progress(len(jobs))],
        ),
    )
    found = search.fit()
    return {
        result.config["name"]: str(result.error).strip().splitlines()[-1]
        for result in found
        if result.error is not None and result.config is not None
    }


class _Progress(tune.Callback):
    """Prints a line when a trial starts, makes a step and ends."""

    def __init__(self, num_trials: int) -> None:
        self._num_trials, self._num_ended = num_trials, 0

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(trial, "started")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "success" in result:
            self._say(trial, f"step {result['step']}, {result['success']:.1%} solved")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._num_ended += 1
        self._say(trial, "finished")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._num_ended += 1
        self._say(trial, "failed")

    def _say(self, trial: Any, what: str) -> None:
        print(f"[{self._num_ended}/{self._num_trials}] {trial.config['name']} {what}", flush=True)


def _trial(settings: Mapping[str, Any]) -> None:
    """Run one trial in Tune's actor: run ``cast-ray train`` and report each of its steps."""
    name, folder = settings["name"], Path(settings["log_dir"])
    run = RunDirectory(folder / name)
    last, seen = 0, None
    if not run.summary.is_file():
        log = folder / f"{name}.log"
        # Tune's actor has its own working directory, where relative paths are wrong.
        if Path(settings["directory"]).is_dir():  # another node may lack it
            os.chdir(settings["directory"])
        for _ in _training(settings["commands"][name], log, address=settings["address"]):
            found = _version(run.metrics)
            if found != seen:  # changes once per step; this checks once per second
                last, seen = _report(run, last), found
    _report(run, last, is_last=True)


def _version(path: Path) -> tuple[int, int] | None:
    """Return modification time and size of a file; None if it is missing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def _report(run: RunDirectory, last: int, *, is_last: bool = False) -> int:
    """Report the steps after ``last`` to Tune, and return the newest."""
    steps = read_metrics(run.metrics) if run.metrics.is_file() else []
    for one in steps:
        if one.step > last:
            tune.report({"step": one.step, "success": one.success})
    if is_last and not steps:
        tune.report({"step": 0})
    return steps[-1].step if steps else last


def _training(command: Sequence[str], log: Path, *, address: str) -> Iterator[None]:
    """Run ``cast-ray train`` in this cluster; yield once per second until it ends.

    Raises:
        EnvironmentSetupError: its exit code is not 0.
    """
    process = _start(command, log, address=address)
    try:
        while process.poll() is None:
            time.sleep(_LOOK_EVERY_S)
            yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=_END_TIMEOUT_S)
    if process.returncode:
        raise EnvironmentSetupError(
            f"exit code {process.returncode}: {_last_words(log)} (log: {log})"
        )


def _start(command: Sequence[str], log: Path, *, address: str) -> subprocess.Popen[bytes]:
    """Start a run in the cluster at ``address``; an existing run directory is resumed."""
    run_dir = Path(next(a.removeprefix("run_dir=") for a in command if a.startswith("run_dir=")))
    resume = ["--resume"] if (run_dir / "config.yaml").is_file() else []
    with open(log, "ab") as file:
        return subprocess.Popen(
            [*command, *resume],
            env={**os.environ, **ends_with_me(), "RAY_ADDRESS": address},
            stdout=file,
            stderr=file,
        )


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("cast-ray:")]
    return (said or lines or ["no output"])[-1]
