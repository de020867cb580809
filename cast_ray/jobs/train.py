"""The training job: one loop from puzzles to a better policy.

A step's way: puzzles -> episodes -> costs -> advantages -> updates -> verified weights.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from cast_ray.chat import ChatTokenizer
from cast_ray.config import TrainConfig
from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.games import get_game
from cast_ray.jobs import evaluate, warm_start
from cast_ray.jobs.boards import Boards, PuzzleSampler, make_boards, read_boards, write_boards
from cast_ray.jobs.training_step import Stopwatch, credit, step_metrics, update
from cast_ray.jobs.workers import (
    SyncResult,
    Workers,
    conversation_limit,
    ray_session,
    reserved_cpus,
    start_learner,
)
from cast_ray.learner_actor import LearnerGroup
from cast_ray.metrics import MetricsLog, StepMetrics, Success, read_metrics
from cast_ray.progress import TrainProgress
from cast_ray.report import write_report
from cast_ray.run_directory import RunDirectory, write_table
from cast_ray.small_policy import read_chat_pieces
from cast_ray.sync_check import LogprobAlarm, logprob_difference


@dataclass(slots=True)
class _Run:
    """What every phase of the job needs."""

    config: TrainConfig
    directory: RunDirectory
    progress: TrainProgress
    boards: Boards
    run_id: str


def train(config: TrainConfig, *, resume: bool, progress: TrainProgress) -> RunDirectory:
    """Run or resume a training run and return its directory.

    Raises:
        CastRayError: bad input or surroundings; nothing is overwritten.
        KeyboardInterrupt: stopped by Ctrl-C, after the step in progress was kept.
    """
    started = time.perf_counter()
    progress.phase("choosing puzzles")
    directory = _reopen(config) if resume else _create(config)
    run = _Run(config, directory, progress, read_boards(directory.puzzles), _run_id(directory.path))
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


def _train(run: _Run) -> None:
    """Start the parts, warm-start the policy where it has to be, and take the steps."""
    config, directory = run.config, run.directory
    engine_model = _engine_model(run)
    with ThreadPoolExecutor(max_workers=1) as background:
        # The engines need a minute to start: meanwhile the policy is taught.
        starting = background.submit(
            Workers.start, config, run_id=run.run_id, model_dir=engine_model
        )
        try:
            start_model = _start_model(run, engine_model)
            run.progress.phase("starting the learner")
            learner = start_learner(config, model_dir=start_model)
        finally:
            run.progress.phase("waiting for the engines")
            workers = starting.result()
    try:
        _take_steps(run, workers, learner)
        learner.save_model(directory.model)
    finally:
        learner.close()
        workers.close()


def _take_steps(run: _Run, workers: Workers, learner: LearnerGroup) -> None:
    """The loop. Weights of version v play step v; version 1 is the start model."""
    config, directory, progress = run.config, run.directory, run.progress
    done, healthy = _restore(run, learner)
    alarm = LogprobAlarm(
        warn_ratio=config.sync.warn_ratio, stop_ratio=config.sync.stop_ratio, healthy=healthy
    )
    synced = _sync(run, workers, learner, version=done + 1)
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
            row, synced = _step(run, workers, learner, sampler, alarm, synced, step=step)
            log.append(row)
            progress.step(row, config.steps)
            is_last = step == config.steps or bool(interrupted)
            if is_last or step % config.checkpoint_every == 0:
                state = {"step": step, "healthy_logprob_abs_diff": alarm.healthy}
                learner.save_checkpoint(directory.checkpoint(step), state)
                directory.drop_old_checkpoints(kept=config.checkpoints_kept)
            if interrupted:
                log.close()
                raise KeyboardInterrupt
    log.close()
    _evaluate_held_out(run, workers, "after", step=config.steps)


def _step(
    run: _Run,
    workers: Workers,
    learner: LearnerGroup,
    sampler: PuzzleSampler,
    alarm: LogprobAlarm,
    played_with: SyncResult,
    *,
    step: int,
) -> tuple[StepMetrics, SyncResult]:
    """Take one step and return its figures and the sync that ended it."""
    config = run.config
    watch = Stopwatch()
    started = time.perf_counter()
    oracle_before, clock_before = workers.pool.counters(), workers.seconds_running()
    groups = evaluate.episode_groups(
        sampler.draw(step),
        attempts=config.rollout.group_size,
        step=step,
        seed=config.seed,
        purpose="rollout",
    )
    scored = evaluate.play(
        workers.pool,
        groups,
        evaluate.training_sampling(config),
        timeout_s=config.rollout.timeout_s,
        on_group=run.progress.rollout,
    )
    watch.seconds["generation"] = workers.seconds_running() - clock_before
    batch, credit_summary = credit(scored, config, step=step)
    reference = ray.put(batch)
    learning = time.perf_counter()
    start_logprobs = learner.logprobs(reference)
    difference = logprob_difference(batch, start_logprobs)
    alarm.judge(difference)
    updates = update(
        learner, reference, batch["group"].to_numpy(), start_logprobs, config, step=step
    )
    watch("learner", learning)
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


def _sync(run: _Run, workers: Workers, learner: LearnerGroup, *, version: int) -> SyncResult:
    timeout_s = run.config.engine.update_timeout_s
    return workers.sync(learner, version=version, timeout_s=timeout_s)


def _validate(run: _Run, workers: Workers, *, step: int) -> Success:
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


def _evaluate_held_out(run: _Run, workers: Workers, name: str, *, step: int) -> None:
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


def _play_evaluation(run: _Run, workers: Workers, groups: list) -> pa.Table:
    return evaluate.play(
        workers.pool,
        groups,
        evaluate.evaluation_sampling(run.config),
        timeout_s=run.config.rollout.timeout_s,
        on_group=run.progress.rollout,
    )


def _engine_model(run: _Run) -> Path:
    """Return the model directory that engines and warm start begin with, built if need be."""
    config, directory = run.config, run.directory
    if config.policy.path:
        return Path(config.policy.path)
    if not directory.initial_model.is_dir():
        turn_budget = get_game(config.game).tiers[config.tier].turn_budget
        run.progress.phase("building the small policy")
        warm_start.build_initial_model(
            directory.initial_model,
            game=config.game,
            turn_budget=turn_budget,
            puzzles=run.boards.train,
            policy=config.policy,
            max_tokens=conversation_limit(config),
            seed=config.seed,
        )
    return directory.initial_model


def _start_model(run: _Run, engine_model: Path) -> Path:
    """Return the model that reinforcement learning starts from, warm-started if need be."""
    config, directory, progress = run.config, run.directory, run.progress
    if directory.start_model.is_dir():
        return directory.start_model
    if config.warm_start.steps == 0:
        return engine_model
    progress.phase("writing demonstrations")
    table = warm_start.demonstrations(
        run.boards.train,
        config.warm_start.num_demonstrations,
        tokenizer=ChatTokenizer(engine_model, read_chat_pieces(engine_model)),
        turn_budget=get_game(config.game).tiers[config.tier].turn_budget,
        mistake_probability=config.warm_start.mistake_probability,
        seed=config.seed,
    )
    progress.phase("starting the learner for the warm start")
    learner = start_learner(config, model_dir=engine_model)
    try:
        warm_start.warm_start(
            learner,
            table,
            config.warm_start,
            seed=config.seed,
            on_step=lambda step, loss: progress.warm_start(step, config.warm_start.steps, loss),
        )
        learner.save_model(directory.start_model)
    finally:
        learner.close()
    return directory.start_model


def _restore(run: _Run, learner: LearnerGroup) -> tuple[int, float | None]:
    """Load the newest checkpoint; return the steps done and the healthy logprob difference."""
    checkpoint = run.directory.newest_checkpoint()
    if checkpoint is None:
        return 0, None
    state = learner.load_checkpoint(checkpoint)
    done = int(state["step"])
    run.directory.forget_after(done)
    run.progress.note(f"resumed after step {done} from {checkpoint}")
    return done, state["healthy_logprob_abs_diff"]


def _summarise(run: _Run, *, seconds: float) -> dict:
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
        "steps": config.steps,
    }
    run.directory.write_summary(summary)
    return summary


def _create(config: TrainConfig) -> RunDirectory:
    """Check all input, then make the run directory: bad input leaves nothing behind."""
    tiers = get_game(config.game).tiers
    if config.tier not in tiers:
        raise ConfigError(f"tier must be one of {', '.join(tiers)}, got {config.tier!r}")
    if config.policy.path:
        read_chat_pieces(Path(config.policy.path))
    boards = make_boards(config.game, config.tier, config.puzzles)
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = config.run_dir or f"runs/{config.game}-{config.tier}-{now}"
    directory = RunDirectory.create(Path(name), config)
    write_boards(boards, directory.puzzles)
    return directory


def _reopen(config: TrainConfig) -> RunDirectory:
    if not config.run_dir:
        raise RunDirectoryError("--resume needs run_dir=PATH, the directory to go on with")
    directory = RunDirectory.reopen(Path(config.run_dir), config)
    if directory.steps_done() >= config.steps:
        raise RunDirectoryError(
            f"{directory.path} has done its {config.steps} steps already; give a larger steps= to "
            "train on"
        )
    return directory


def _run_id(path: Path) -> str:
    """Return a name for this run's actors and applications, different for every start."""
    return f"{path.name}-{datetime.now(UTC).strftime('%H%M%S%f')}"


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
