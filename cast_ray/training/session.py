"""The parts of a training run in one process, from the opened run directory to the loop."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext

import ray
from ray.util.placement_group import remove_placement_group

from cast_ray.cluster.check import require_fit_cluster, require_fit_machine
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
from cast_ray.learner.group import LearnerGroup
from cast_ray.parquet import write_table
from cast_ray.rollout import specs
from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.recoveries import RecoveryLog
from cast_ray.runs.report import write_report
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.tracking import TrackedRun, Tracking
from cast_ray.statistics import Success
from cast_ray.training.loop import TrainingLoop
from cast_ray.training.monitor import RunMonitor
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.recovering_learner import RecoveringLearner
from cast_ray.training.run import Run, open_run
from cast_ray.training.step_metrics import PlayedStep
from cast_ray.training.value_net.oracle import value_net_of
from cast_ray.training.warm_start import engine_model, start_model
from cast_ray.training.workers import Workers, reserve_learner, start_learner


class TrainingSession:
    """A run with its engines, env runners, oracles and learner up."""

    run: Run
    workers: Workers
    learner: RecoveringLearner
    loop: TrainingLoop
    parts: ExitStack
    """A block at whose end all parts end, and everything written is sent to the run's URI."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        resume: bool,
        progress: TrainProgress,
        lost_at: float | None = None,
        on_played: Callable[[PlayedStep], None] = lambda played: None,
    ) -> None:
        """Create the run, or reopen it, and start its parts.

        Args:
            config: of the run.
            resume: whether to resume the run in ``config.run_dir``.
            progress: shows the user what happens.
            lost_at: when the driver that this one replaces was lost, as ``time.time``.
            on_played: called with what a step played, once that is on disk.

        Raises:
            RunInterrupted: a part was lost that may come back; resume the run.
            CastRayError: the input or the machine is not fit; nothing is overwritten.
        """
        self.run = open_run(config, resume=resume, progress=progress, lost_at=lost_at)
        with ExitStack() as parts:
            parts.enter_context(self.run.on_exit)
            # The lost driver could start: whatever prevents it now may pass.
            with nullcontext() if lost_at is None else losses_named(EnvironmentSetupError):
                self._join_ray(parts)
                self._start(parts, on_played)
            parts.push(self._settle_and_report)
            self.parts = parts.pop_all()

    def _join_ray(self, parts: ExitStack) -> None:
        config, progress = self.run.config, self.run.progress
        progress.phase("starting Ray")
        is_joined = ray.is_initialized()  # the caller's, which stays
        if not is_joined:
            require_fit_machine(config)
            is_joined = parts.enter_context(ray_session(num_cpus=reserved_cpus(config)))
        wait_for_places(config, say=progress.phase)
        if is_joined:
            progress.phase("looking at the cluster's nodes")
            run_dir = str(self.run.directory.address)
            require_fit_cluster(config, run_dir=run_dir, on_note=progress.note)

    def _start(self, parts: ExitStack, on_played: Callable[[PlayedStep], None]) -> None:
        """Start engines, pool and learner, and warm-start the policy if needed."""
        run, config, directory = self.run, self.run.config, self.run.directory
        first_model = engine_model(run)
        pieces = run.chat_pieces(first_model)
        recoveries = RecoveryLog(directory.recoveries, on_recovery=run.progress.recovery)
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
                pieces=pieces,
                earlier_ids=run.earlier_ids,
                value_net=value_net_of(config, directory.value_net),
            )
            # Registered now, because Ctrl-C may come before the start is done.
            parts.callback(_close_started, starting)
            try:
                with self._gpu_to_the_learner(starting):
                    try:
                        taught_model = start_model(run, first_model, reserved)
                    except LearnerLost as error:  # a resumed run takes up its warm start
                        raise RunInterrupted(str(error)) from error
                    run.progress.phase("starting the learner")
                    self.learner = RecoveringLearner(
                        functools.partial(
                            start_learner,
                            config,
                            model_dir=taught_model,
                            pieces=pieces,
                            reserved=reserved,
                        ),
                        max_restarts=config.learner.max_restarts,
                        on_recovery=functools.partial(recoveries.record, "learner"),
                    )
                    parts.callback(self.learner.close)
            finally:
                run.progress.phase("waiting for the engines")
                self.workers = starting.result()
        exporter = MetricsExporter(directory.plain_name)
        monitor = RunMonitor(self.workers, recoveries, exporter)
        parts.callback(monitor.close)
        tracked = TrackedRun(directory=directory.path, config=config)
        tracking = Tracking(config.tracking, tracked, warn=run.progress.note)

        def end_tracking(kind: object, failure: BaseException | None, _: object) -> None:
            tracking.close(directory.read_summary(), failed=failure is not None)

        parts.push(end_tracking)
        with losses_named():
            self.loop = TrainingLoop(
                run,
                self.workers,
                self.learner,
                monitor=monitor,
                recoveries=recoveries,
                exporter=exporter,
                tracking=tracking,
                on_played=on_played,
            )
            self.loop.catch_up()
        if run.lost_at is not None:
            recoveries.record("driver", "a new driver resumed", time.time() - run.lost_at)

    @contextmanager
    def _gpu_to_the_learner(self, starting: Future[Workers]) -> Iterator[None]:
        """Start the learner while the engines start, or after them if they share a GPU.

        vLLM measures the free memory while it starts, and then sleeps until the learner is there.
        """
        if not self.run.config.resources.share_gpu:
            yield
            return
        self.run.progress.phase("waiting for the engines, which start alone on the shared GPU")
        with starting.result().engines_at_rest(self._release_memory):
            yield

    def _release_memory(self) -> None:
        self.learner.call(LearnerGroup.release_memory)

    def take_step(self) -> StepMetrics:
        """Take the next step; the checkpoint that is due then is written.

        Raises:
            RunInterrupted: a part was lost that may come back; resume the run.
            CastRayError: the run cannot continue; what was played is kept.
        """
        config, loop = self.run.config, self.loop
        with losses_named():
            if loop.steps_done == 0:
                loop.validate(0)
            row = loop.take_step(loop.steps_done + 1)
            self.run.progress.step(row, max(config.steps, row.step))
            self.run.send()
            if row.step == config.steps or row.step % config.checkpoint_every == 0:
                loop.save_checkpoint()
        return row

    def evaluate(self, name: str) -> Success:
        """Play the held-out boards with the present weights; store and return the result.

        Args:
            name: of the file in ``evaluations/``, and of the random numbers.

        Raises:
            RunInterrupted: a part was lost that may come back; resume the run.
        """
        run = self.run
        run.progress.phase(f"playing the held-out boards {name} training")
        groups = specs.episode_groups(
            run.boards.held_out,
            attempts=run.config.evaluation.held_out_attempts,
            step=self.loop.steps_done,
            seed=run.config.seed,
            purpose=f"held out {name}",
            min_weight_version=self.loop.steps_done + 1,
        )
        with losses_named():
            self.loop.settle()
            table = self.workers.collector.play(
                groups,
                specs.evaluation_sampling(run.config),
                timeout_s=run.config.rollout.timeout_s,
                on_group=run.progress.rollout,
                log_to=lambda group: run.directory.evaluation_group(
                    name, self.loop.steps_done, group[0].group
                ),
            )
        write_table(run.directory.evaluations / f"{name}.parquet", table)
        run.directory.drop_evaluation_groups(name)
        success = specs.success_of(table, seed=run.config.seed)
        run.progress.evaluation(f"held-out {name} training", success)
        return success

    def save_checkpoint(self) -> None:
        """Save all that training needs to resume after the last step taken."""
        with losses_named():
            self.loop.settle()
            self.loop.save_checkpoint()

    def save_model(self) -> None:
        """Write the policy to the run's ``model/``, as a model directory."""
        directory = self.run.directory
        with losses_named():
            self.learner.call(lambda group: group.save_model(directory.location(directory.model)))

    def _settle_and_report(self, kind: object, failure: BaseException | None, _: object) -> None:
        if failure is None:
            self.loop.settle()
        if failure is None or isinstance(failure, KeyboardInterrupt):
            write_report(self.run.directory)


def _close_started(starting: Future[Workers]) -> None:
    if starting.exception() is None:
        starting.result().close()


@contextmanager
def losses_named(*others: type[CastRayError]) -> Iterator[None]:
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
