"""The training loop: draw puzzles, play, score, credit, learn, sync, log.

What a step trains on is on disk before its first update. So a lost learner and a lost driver
recover in the same way: load the newest checkpoint, then learn from the logged steps again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from cast_ray.algorithms.credit import add_credit
from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.errors import LearnerError, TrajectoryError, WeightSyncError
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.logprob_check import LogprobAlarm
from cast_ray.rollout.trajectory import SCORED_SCHEMA
from cast_ray.runs.metrics import StepMetrics, read_metrics
from cast_ray.runs.metrics_log import MetricsLog
from cast_ray.runs.recoveries import Kind, RecoveryLog
from cast_ray.runs.tracking import Tracking, game_texts
from cast_ray.statistics import Success
from cast_ray.training.monitor import RunMonitor
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.recovering_learner import RecoveringLearner
from cast_ray.training.resume import restore, training_state
from cast_ray.training.run import Run
from cast_ray.training.schedule import RolloutSchedule, Validation
from cast_ray.training.step_metrics import (
    UNSEEN_FIGURES,
    PlayedStep,
    played_figures,
    step_metrics,
)
from cast_ray.training.update import Learned, SkippedUpdates, learn
from cast_ray.training.workers import Workers

_DROPPED_GROUPS = b"dropped_groups"
"""Key of a note in the schema of a step's trajectories."""


class TrainingLoop:
    """Takes a run's steps. Weights of version v play step v; version 1 is the start model's."""

    def __init__(
        self,
        run: Run,
        workers: Workers,
        learner: RecoveringLearner,
        *,
        monitor: RunMonitor,
        recoveries: RecoveryLog,
        exporter: MetricsExporter,
        tracking: Tracking,
        on_played: Callable[[PlayedStep], None] = lambda played: None,
    ) -> None:
        """Bring the learner to the newest checkpoint; play nothing yet.

        ``on_played`` is called with what a step played, once that is on disk.

        Raises:
            RunDirectoryError: files that the checkpoint depends on are missing.
        """
        config, directory = run.config, run.directory
        self._run, self._workers, self._learner = run, workers, learner
        self._monitor, self._recoveries, self._exporter = monitor, recoveries, exporter
        self._on_played = on_played
        self._counted: Counter[Kind] = Counter()
        directory.tidy_trajectories()
        state = learner.call(lambda group: restore(run, group))
        self.steps_done = self._last_saved = state.step
        learner.set_restore(self._catch_up_ranks)
        self._alarm = LogprobAlarm(config.sync, healthy=state.healthy_logprob_abs_diff)
        self._skipped = SkippedUpdates(
            most=config.learner.max_skipped_updates, in_a_row=state.skipped_updates
        )
        self._last_logged = max(directory.last_logged_step, state.step)
        rows = [row for row in read_metrics(directory.metrics) if row.step <= self._last_logged]
        self._tracking = tracking
        self.metrics = MetricsLog(directory.metrics, tracking, rows=rows)
        self._schedule = RolloutSchedule(
            workers.collector,
            PuzzleSampler(
                run.boards.train, per_step=config.rollout.puzzles_per_step, seed=config.seed
            ),
            config,
            first_step=self._last_logged + 1,
            group_file=directory.group_file,
        )
        self._validation = Validation(run, workers.collector)
        self._layer_error = 0.0

    def catch_up(self) -> None:
        """Learn from logged steps that are in no checkpoint, then send the engines the weights.

        Raises:
            WeightSyncError: an engine does not hold the weights that were sent.
        """
        for step in range(self.steps_done + 1, self._last_logged + 1):
            if self._lacks_validation():  # lost with a driver; these weights exist only now
                self._sync(self.steps_done + 1)
                self.validate(self.steps_done)
                self.settle()
            self._run.progress.phase(f"learning again from the trajectories of step {step}")
            started = time.perf_counter()
            table = self._run.directory.read_trajectories(step)
            dropped_groups = int(table.schema.metadata[_DROPPED_GROUPS])
            played = self._credited(table.select(SCORED_SCHEMA.names), step, dropped_groups)
            learned = self._learn(played)
            if self.metrics.row_of(step) is None:
                self._log(
                    step_metrics(
                        played,
                        learned,
                        UNSEEN_FIGURES,
                        layer_error=math.nan,
                        seconds_total=time.perf_counter() - started,
                        seconds_sync=0.0,
                    )
                )
        self._sync(self.steps_done + 1)
        if self._lacks_validation():
            self.validate(self.steps_done)

    def take_step(self, step: int) -> StepMetrics:
        """Take one step and return its row, which is already on disk.

        Raises:
            CastRayError: the run cannot continue; what was played is kept.
        """
        started, first_look = time.perf_counter(), self._monitor.look()
        self._schedule.issue_through(step)
        scored, dropped = self._schedule.take(step, on_group=self._run.progress.rollout)
        played = self._credited(scored, step, dropped)
        self._check_staleness(played)
        # The number of dropped groups follows from no column, and a row made again needs it.
        note = {_DROPPED_GROUPS: str(dropped)}
        self._run.directory.write_trajectories(step, played.batch.replace_schema_metadata(note))
        self._on_played(played)
        if step % self._run.config.checkpoint_every == 0 or step == self._run.config.steps:
            self._tracking.games(step, game_texts(played.batch))
        learned = self._learn(played)
        layer_error, seconds_sync = self._layer_error, self._sync(step + 1)
        if self._run.config.max_staleness:
            self._schedule.issue_through(step + 1)
        seconds_total = time.perf_counter() - started
        self._monitor.look()
        row = step_metrics(
            played,
            learned,
            played_figures(self._monitor.looks_since(first_look), self._new_recoveries()),
            layer_error=layer_error,
            seconds_total=seconds_total,
            seconds_sync=seconds_sync,
        )
        self._log(row)
        self.validate(step)
        return self.metrics.row_of(step) or row

    def validate(self, step: int) -> None:
        """Validate after a step if it is due; with asynchronous rollouts nothing waits for it."""
        self._validation.settle(self._validated, wait=self._validation.is_due(step))
        if self._validation.is_due(step):
            self._validation.begin(step)
        self._validation.settle(self._validated, wait=self._run.config.max_staleness == 0)

    def save_checkpoint(self) -> None:
        """Save all that training needs to resume after the last step taken, if that is not done."""
        if self.steps_done == self._last_saved:
            return
        # That of an earlier step could not be made again from this checkpoint.
        self._validation.settle(self._validated, wait=not self._validation.is_due(self.steps_done))
        started = time.perf_counter()
        self._run.send_all()  # a checkpoint is of no use without the trajectories that led to it
        directory, step = self._run.directory, self.steps_done
        state = training_state(
            self._run,
            step=step,
            healthy=self._alarm.healthy,
            skipped_updates=self._skipped.in_a_row,
        ).to_json()
        location = directory.location(directory.checkpoint(step))
        self._learner.call(lambda group: group.save_checkpoint(location, state))
        directory.drop_old_checkpoints(step, kept=self._run.config.checkpoints_kept)
        self._last_saved = step
        self._amend(step, seconds_checkpoint=time.perf_counter() - started)

    def settle(self) -> None:
        """Wait for a validation that is under way."""
        self._validation.settle(self._validated, wait=True)

    def _lacks_validation(self) -> bool:
        row = self.metrics.row_of(self.steps_done)
        is_due = self._validation.is_due(self.steps_done)
        return is_due and row is not None and row.validation_success is None

    def _credited(self, scored: pa.Table, step: int, dropped_groups: int) -> PlayedStep:
        batch, summary = add_credit(scored, self._run.config, step=step)
        return PlayedStep(step=step, batch=batch, dropped_groups=dropped_groups, credit=summary)

    def _learn(self, played: PlayedStep) -> Learned:
        """Take a step's updates; start them again if the learner is lost meanwhile."""
        directory, step = self._run.directory, played.step
        # Stale weights differ from the learner's by what it learned since: that is no engine fault.
        is_fresh = played.staleness_max == 0

        def take_updates(group: LearnerGroup) -> Learned:
            return learn(
                group,
                played.batch,
                self._workers.tokenizer,
                self._run.config,
                step=step,
                check=self._alarm.judge if is_fresh else lambda difference: None,
            )

        kept_out = self._set_aside_on(step, WeightSyncError, TrajectoryError)
        release_memory = partial(self._learner.call, LearnerGroup.release_memory)
        with kept_out, self._workers.engines_at_rest(release_memory):
            learned = self._learner.call(take_updates)
            with self._set_aside_on(step, LearnerError):
                self._skipped.judge(learned.updates, directory.inspection(step))
            self.steps_done = step  # a rank that is lost from here on must learn this step again
        return learned

    @contextmanager
    def _set_aside_on(self, step: int, *errors: type[Exception]) -> Iterator[None]:
        """Move a step's trajectories out of the log if it fails so: a resumed run would, too."""
        try:
            yield
        except errors:
            self._run.directory.set_aside(step)
            raise

    def _catch_up_ranks(self, group: LearnerGroup) -> None:
        """Bring new ranks to the weights after ``steps_done``."""
        point = self._run.directory.resume_point()
        if point.checkpoint is not None:
            group.load_checkpoint(point.checkpoint)
        for step in range(point.step + 1, self.steps_done + 1):
            batch = self._run.directory.read_trajectories(step)
            learn(group, batch, self._workers.tokenizer, self._run.config, step=step)

    def _sync(self, version: int) -> float:
        """Send the learner's weights to the engines and return the seconds that this took."""
        workers = self._workers
        timeout_s = self._run.config.engine.update_timeout_s
        started = time.perf_counter()

        def sync(group: LearnerGroup) -> float:
            manifest = group.publish_weights(
                workers.weights_dir, version=version, dtype=workers.dtype
            )
            return workers.sync(manifest, group, timeout_s=timeout_s)

        # In one call: if a rank is lost while sending, the new one must publish first.
        self._layer_error = self._learner.call(sync)
        return time.perf_counter() - started

    def _log(self, row: StepMetrics) -> None:
        self.metrics.append(row)
        self._exporter.step(row)

    def _new_recoveries(self) -> Counter[Kind]:
        """Return the recoveries since the last row, by kind."""
        counts = Counter(self._recoveries.counts)
        new, self._counted = counts - self._counted, counts
        return new

    def _check_staleness(self, played: PlayedStep) -> None:
        """Raise TrajectoryError if a token is older than ``max_staleness`` allows."""
        bound, found = self._run.config.max_staleness, played.staleness_max
        if found > bound:
            raise TrajectoryError(
                f"a token of step {played.step} was written by weights {found} steps old, but "
                f"max_staleness is {bound}; nothing was trained on it. This is a bug in the "
                "rollout schedule: please report it"
            )

    def _amend(self, step: int, **values: float) -> None:
        self.metrics.amend(step, **values)
        self._exporter.columns(values)

    def _validated(self, step: int, success: Success, seconds: float) -> None:
        if self.metrics.row_of(step) is None:  # the start model's
            self._run.progress.evaluation("validation", success)
            return
        self._amend(step, validation_success=success.success, seconds_validation=seconds)
        if self._run.config.max_staleness:
            self._run.progress.evaluation(f"validation after step {step}", success)
