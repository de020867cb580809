"""The training job: one loop from puzzles to a better policy.

A step's way: puzzles -> episodes -> costs -> advantages -> updates -> verified weights.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from cast_ray.config import TrainConfig
from cast_ray.errors import WeightSyncError
from cast_ray.jobs import evaluate
from cast_ray.jobs.boards import PuzzleSampler
from cast_ray.jobs.ray_session import ray_session
from cast_ray.jobs.resume import restore, training_state
from cast_ray.jobs.run import Run, open_run
from cast_ray.jobs.start_model import engine_model, start_model
from cast_ray.jobs.training_step import Stopwatch, credit, play_step, step_metrics
from cast_ray.jobs.updates import (
    SkippedUpdates,
    distill,
    keep_for_inspection,
    objective_of,
    update,
)
from cast_ray.jobs.workers import SyncResult, Workers, reserved_cpus, start_learner
from cast_ray.learner_group import LearnerGroup
from cast_ray.metrics import MetricsLog, StepMetrics, Success, read_metrics
from cast_ray.progress import TrainProgress
from cast_ray.report import write_report
from cast_ray.run_directory import RunDirectory, write_table
from cast_ray.sync_check import LogprobAlarm, logprob_difference


def train(config: TrainConfig, *, resume: bool, progress: TrainProgress) -> RunDirectory:
    """Run or resume a training run and return its directory.

    Raises:
        CastRayError: bad input or surroundings; nothing is overwritten.
        KeyboardInterrupt: stopped by Ctrl-C, after the step in progress was kept.
    """
    started = time.perf_counter()
    progress.phase("choosing puzzles")
    run = open_run(config, resume=resume, progress=progress)
    directory = run.directory
    progress.phase("starting Ray")
    try:
        with ray_session(num_cpus=reserved_cpus(config)):
            _train(run)
    except KeyboardInterrupt:
        write_report(directory)
        raise
    summary = _summarise(run, seconds=time.perf_counter() - started)
    progress.phase("writing the report")
    write_report(directory)
    progress.finish(directory.path, summary)
    return directory


def _train(run: Run) -> None:
    """Start the parts, warm-start the policy where it has to be, and take the steps."""
    config, directory = run.config, run.directory
    first_model = engine_model(run)
    with ExitStack() as parts:
        with ThreadPoolExecutor(max_workers=1) as background:
            # The engines need a minute to start: meanwhile the policy is taught.
            starting = background.submit(
                Workers.start, config, run_id=run.run_id, model_dir=first_model
            )
            try:
                taught_model = start_model(run, first_model)
                run.progress.phase("starting the learner")
                learner = start_learner(config, model_dir=taught_model)
                parts.callback(learner.close)
            finally:
                run.progress.phase("waiting for the engines")
                workers = starting.result()
                parts.callback(workers.close)
        _take_steps(run, workers, learner)
        learner.save_model(directory.model)


def _take_steps(run: Run, workers: Workers, learner: LearnerGroup) -> None:
    """The loop. Weights of version v play step v; version 1 is the start model."""
    config, directory, progress = run.config, run.directory, run.progress
    state = restore(run, learner)
    done = state.step
    alarm = LogprobAlarm(
        warn_ratio=config.sync.warn_ratio,
        stop_ratio=config.sync.stop_ratio,
        healthy=state.healthy_logprob_abs_diff,
    )
    skipped = SkippedUpdates(
        most=config.learner.max_skipped_updates, in_a_row=state.skipped_updates
    )
    synced = _sync(run, workers, learner, version=state.weight_version)
    rows = [row for row in read_metrics(directory.metrics) if row.step <= done]
    log = MetricsLog(directory.metrics, directory.events, rows=rows)
    sampler = PuzzleSampler(
        run.boards.train, per_step=config.rollout.puzzles_per_step, seed=config.seed
    )
    _evaluate_held_out(run, workers, "before", step=0)
    if done == 0 and config.evaluation.every:
        progress.evaluation("validation", _validate(run, workers, step=0))
    with _finish_step_on_interrupt(progress) as interrupted:
        for step in range(done + 1, config.steps + 1):
            row, synced = _step(run, workers, learner, sampler, alarm, skipped, synced, step=step)
            log.append(row)
            progress.step(row, config.steps)
            is_last = step == config.steps or bool(interrupted)
            if is_last or step % config.checkpoint_every == 0:
                state = training_state(
                    run, step=step, healthy=alarm.healthy, skipped_updates=skipped.in_a_row
                )
                learner.save_checkpoint(directory.checkpoint(step), state.to_json())
                directory.drop_old_checkpoints(step, kept=config.checkpoints_kept)
            if interrupted:
                log.close()
                raise KeyboardInterrupt
    log.close()
    _evaluate_held_out(run, workers, "after", step=config.steps)


def _step(
    run: Run,
    workers: Workers,
    learner: LearnerGroup,
    sampler: PuzzleSampler,
    alarm: LogprobAlarm,
    skipped: SkippedUpdates,
    played_with: SyncResult,
    *,
    step: int,
) -> tuple[StepMetrics, SyncResult]:
    """Take one step and return its figures and the sync that ended it."""
    config = run.config
    watch = Stopwatch()
    started = time.perf_counter()
    oracle_before, clock_before = workers.pool.counters(), workers.seconds_running()
    scored, dropped_groups = play_step(
        workers.pool, sampler, config, step=step, on_group=run.progress.rollout
    )
    watch.seconds["generation"] = workers.seconds_running() - clock_before
    batch, credit_summary = credit(scored, config, step=step)
    reference = ray.put(batch)
    learning = time.perf_counter()
    start_logprobs = learner.logprobs(reference)
    difference = logprob_difference(batch, start_logprobs, objective_of(config))
    try:
        alarm.judge(difference)
    except WeightSyncError:
        keep_for_inspection(batch, run.directory.inspection(step))
        raise
    if config.distillation.mode == "forward":
        updates = distill(learner, batch, workers.tokenizer, config, step=step)
    else:
        updates = update(
            learner, reference, batch["group"].to_numpy(), start_logprobs, config, step=step
        )
    watch("learner", learning)
    skipped.judge(updates, batch, run.directory.inspection(step))
    run.directory.write_trajectories(step, batch)
    synced = _sync(run, workers, learner, version=step + 1)
    watch.seconds["sync"] = synced.seconds
    watch("total", started)
    validating = time.perf_counter()
    every = config.evaluation.every
    validation = _validate(run, workers, step=step) if every and step % every == 0 else None
    watch("validation", validating)
    row = step_metrics(
        batch,
        step=step,
        dropped_groups=dropped_groups,
        credit_summary=credit_summary,
        updates=updates,
        difference=difference,
        layer_error=played_with.layer_error,
        oracle_before=oracle_before,
        oracle_after=workers.pool.counters(),
        seconds=watch.seconds,
        validation_success=None if validation is None else validation.success,
    )
    return row, synced


def _sync(run: Run, workers: Workers, learner: LearnerGroup, *, version: int) -> SyncResult:
    timeout_s = run.config.engine.update_timeout_s
    return workers.sync(learner, version=version, timeout_s=timeout_s)


def _validate(run: Run, workers: Workers, *, step: int) -> Success:
    attempts = run.config.evaluation.validation_attempts
    groups = evaluate.episode_groups(
        run.boards.validation,
        attempts=attempts,
        step=step,
        seed=run.config.seed,
        purpose="validation",
    )
    table = _play_evaluation(run, workers, groups)
    return evaluate.success_of(table, seed=run.config.seed)


def _evaluate_held_out(run: Run, workers: Workers, name: str, *, step: int) -> None:
    """Play the held-out boards and keep the games, unless a resumed run has them already."""
    path = run.directory.evaluations / f"{name}.parquet"
    if name == "before" and path.is_file():
        return
    run.progress.phase(f"playing the held-out boards {name} training")
    groups = evaluate.episode_groups(
        run.boards.held_out,
        attempts=run.config.evaluation.held_out_attempts,
        step=step,
        seed=run.config.seed,
        purpose=f"held out {name}",
    )
    table = _play_evaluation(run, workers, groups)
    write_table(path, table)
    run.progress.evaluation(
        f"held-out {name} training", evaluate.success_of(table, seed=run.config.seed)
    )


def _play_evaluation(run: Run, workers: Workers, groups: list) -> pa.Table:
    return evaluate.play(
        workers.pool,
        groups,
        evaluate.evaluation_sampling(run.config),
        timeout_s=run.config.rollout.timeout_s,
        on_group=run.progress.rollout,
    )


def _summarise(run: Run, *, seconds: float) -> dict:
    tables = {
        name: pq.read_table(run.directory.evaluations / f"{name}.parquet")
        for name in ("before", "after")
    }
    config = run.config
    summary = {
        **{
            name: asdict(evaluate.success_of(table, seed=config.seed))
            for name, table in tables.items()
        },
        "seconds": seconds,
        "seed": config.seed,
        "game": config.game,
        "tier": config.tier,
        "algorithm": config.algorithm,
        "steps": config.steps,
    }
    run.directory.write_summary(summary)
    return summary


@contextmanager
def _finish_step_on_interrupt(progress: TrainProgress) -> Iterator[list[int]]:
    """Let Ctrl-C wait for the end of the step; the second one stops at once.

    Yields:
        A list that is not empty once Ctrl-C was pressed.
    """
    interrupted: list[int] = []

    def on_interrupt(number: int, _frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(number)
        progress.note("stopping after this step; press Ctrl-C again to stop at once")

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
