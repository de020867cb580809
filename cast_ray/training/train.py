"""The training job, from opening the run to its report; the steps themselves are in ``loop``."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict

import pyarrow.parquet as pq
from ray.util.placement_group import remove_placement_group

from cast_ray.cluster.check import require_fit_cluster
from cast_ray.cluster.code_version import code_version
from cast_ray.cluster.placement import reserved_cpus, wait_for_places
from cast_ray.cluster.session import ray_session
from cast_ray.config.train import TrainConfig
from cast_ray.errors import (
    ActorLostError,
    CastRayError,
    EngineError,
    EnvironmentSetupError,
    LearnerLost,
    RemoteTimeout,
    RunInterrupted,
)
from cast_ray.rollout import specs
from cast_ray.runs.recoveries import RecoveryLog
from cast_ray.runs.report import write_report
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory, write_table
from cast_ray.training.loop import TrainingLoop
from cast_ray.training.monitor import RunMonitor
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.recovering_learner import RecoveringLearner
from cast_ray.training.run import Run, open_run
from cast_ray.training.value_net.oracle import value_net_of
from cast_ray.training.warm_start import engine_model, start_model
from cast_ray.training.workers import Workers, reserve_learner, start_learner


def train(
    config: TrainConfig,
    *,
    resume: bool,
    progress: TrainProgress,
    lost_at: float | None = None,
) -> RunDirectory:
    """Run or resume a training run and return its directory.

    Args:
        config: of the run.
        resume: whether to resume the run in ``config.run_dir``.
        progress: shows the user what happens.
        lost_at: when the driver that this one replaces was lost, as ``time.time``.

    Raises:
        RunInterrupted: a part was lost that may come back; resume the run.
        CastRayError: the input or the machine is not fit; nothing is overwritten.
        KeyboardInterrupt: stopped by Ctrl-C, after the step in progress was saved.
    """
    started = time.perf_counter()
    progress.phase("choosing puzzles")
    run = open_run(config, resume=resume, progress=progress, lost_at=lost_at)
    with run.publish_on_exit():
        return _finish(run, started=started)


def _finish(run: Run, *, started: float) -> RunDirectory:
    """Train to the end, then write summary and report."""
    config, directory, progress = run.config, run.directory, run.progress
    progress.phase("starting Ray")
    try:
        # The lost driver could start: whatever prevents it now may pass.
        naming = nullcontext() if run.lost_at is None else _losses_named(EnvironmentSetupError)
        with naming, ray_session(num_cpus=reserved_cpus(config)) as is_joined:
            wait_for_places(config, say=progress.phase)
            if is_joined:
                progress.phase("looking at the cluster's nodes")
                run_dir = str(directory.address)
                require_fit_cluster(config, run_dir=run_dir, on_note=progress.note)
            _train(run)
    except KeyboardInterrupt:
        write_report(directory)
        raise
    summary = _summarise(run, seconds=time.perf_counter() - started)
    progress.phase("writing the report")
    write_report(directory)
    run.send_all()
    progress.finish(directory.address, summary)
    return directory


def _train(run: Run) -> None:
    """Start the parts, warm-start the policy if needed, and take the steps."""
    config, directory = run.config, run.directory
    first_model = engine_model(run)
    recoveries = RecoveryLog(directory.recoveries, on_recovery=run.progress.recovery)
    with ExitStack() as parts:
        # Before the engines take single GPUs on many nodes: the ranks should be near each other.
        reserved = reserve_learner(config)
        parts.callback(remove_placement_group, reserved)
        with ThreadPoolExecutor(max_workers=1) as background:
            # The engines need a minute to start; the policy is warm-started meanwhile.
            starting = background.submit(
                Workers.start,
                config,
                run_id=run.run_id,
                model_dir=first_model,
                earlier_ids=run.earlier_ids,
                value_net=value_net_of(config, directory.value_net),
            )
            # Registered now, because Ctrl-C may come before the start is done.
            parts.callback(_close_started, starting)
            try:
                taught_model = start_model(run, first_model, reserved)
                run.progress.phase("starting the learner")
                learner = RecoveringLearner(
                    functools.partial(
                        start_learner, config, model_dir=taught_model, reserved=reserved
                    ),
                    max_restarts=config.learner.max_restarts,
                    on_recovery=functools.partial(recoveries.record, "learner"),
                )
                parts.callback(learner.close)
            finally:
                run.progress.phase("waiting for the engines")
                workers = starting.result()
        exporter = MetricsExporter(directory.path.name)
        monitor = RunMonitor(workers, recoveries, exporter)
        parts.callback(monitor.close)
        with _losses_named():
            loop = TrainingLoop(
                run, workers, learner, monitor=monitor, recoveries=recoveries, exporter=exporter
            )
            _take_steps(run, workers, loop, recoveries)
            learner.call(lambda group: group.save_model(directory.location(directory.model)))


def _close_started(starting: Future[Workers]) -> None:
    if starting.exception() is None:
        starting.result().close()


def _take_steps(run: Run, workers: Workers, loop: TrainingLoop, recoveries: RecoveryLog) -> None:
    """Take the remaining steps, between the two evaluations on the held-out boards."""
    config, progress = run.config, run.progress
    loop.catch_up()
    if run.lost_at is not None:
        recoveries.record("driver", "a new driver resumed", time.time() - run.lost_at)
    _evaluate_held_out(run, workers, "before", step=0)
    if loop.steps_done == 0:
        loop.validate(0)
    with _finish_step_on_interrupt(progress) as interrupted:
        for step in range(loop.steps_done + 1, config.steps + 1):
            progress.step(loop.take_step(step), config.steps)
            run.send()
            is_last = step == config.steps or bool(interrupted)
            if is_last or step % config.checkpoint_every == 0:
                loop.save_checkpoint()
            if interrupted:
                loop.close()
                raise KeyboardInterrupt
    loop.close()
    _evaluate_held_out(run, workers, "after", step=config.steps)


def _evaluate_held_out(run: Run, workers: Workers, name: str, *, step: int) -> None:
    """Play the held-out boards and store the games, unless a resumed run already has them."""
    path = run.directory.evaluations / f"{name}.parquet"
    if name == "before" and path.is_file():
        return
    run.progress.phase(f"playing the held-out boards {name} training")
    groups = specs.episode_groups(
        run.boards.held_out,
        attempts=run.config.evaluation.held_out_attempts,
        step=step,
        seed=run.config.seed,
        purpose=f"held out {name}",
        min_weight_version=step + 1,
    )
    table = workers.collector.play(
        groups,
        specs.evaluation_sampling(run.config),
        timeout_s=run.config.rollout.timeout_s,
        on_group=run.progress.rollout,
    )
    write_table(path, table)
    run.progress.evaluation(
        f"held-out {name} training", specs.success_of(table, seed=run.config.seed)
    )


def _summarise(run: Run, *, seconds: float) -> dict:
    tables = {
        name: pq.read_table(run.directory.evaluations / f"{name}.parquet")
        for name in ("before", "after")
    }
    config = run.config
    summary = {
        **{
            name: asdict(specs.success_of(table, seed=config.seed))
            for name, table in tables.items()
        },
        "seconds": seconds,
        "seed": config.seed,
        "game": config.game,
        "tier": config.tier,
        "algorithm": config.algorithm,
        "steps": config.steps,
        "code": code_version(),
    }
    run.directory.write_summary(summary)
    return summary


@contextmanager
def _losses_named(*others: type[CastRayError]) -> Iterator[None]:
    """Turn errors that a resumed run may not meet again into RunInterrupted.

    Args:
        others: further types of such errors.

    Raises:
        RunInterrupted: a part of the run was lost.
    """
    try:
        yield
    except (ActorLostError, EngineError, LearnerLost, RemoteTimeout, *others) as error:
        raise RunInterrupted(str(error)) from error


@contextmanager
def _finish_step_on_interrupt(progress: TrainProgress) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM wait for the end of the step; a second one stops at once.

    Yields:
        A list that is not empty once a signal has come.
    """
    interrupted: list[int] = []

    def on_interrupt(number: int, _frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(number)
        progress.note("stopping after this step; press Ctrl-C again to stop at once")

    previous = {
        number: signal.signal(number, on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
