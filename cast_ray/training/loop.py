"""The steps of a run: trajectories, updates, weights; and the way back after a loss.

What a step trains on is on disk before its first update. A learner that was lost, and a driver that
was, come back by the same road: the newest checkpoint, then the logged steps once more.
"""

from __future__ import annotations

import math
import time
from collections import Counter

import pyarrow as pa

from cast_ray.algorithms.credit import add_credit
from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.errors import LearnerError, TrajectoryError, WeightSyncError
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.logprob_check import LogprobAlarm
from cast_ray.rollout.trajectory import SCORED_SCHEMA
from cast_ray.runs.metrics import StepMetrics, Success, read_metrics
from cast_ray.runs.metrics_log import MetricsLog
from cast_ray.runs.recoveries import Kind, RecoveryLog
from cast_ray.training.monitor import RunMonitor
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.recovering_learner import RecoveringLearner
from cast_ray.training.resume import restore, training_state
from cast_ray.training.run import Run
from cast_ray.training.schedule import RolloutSchedule, Validation
from cast_ray.training.step_metrics import (
    UNSEEN_FIGURES,
    PlayedStep,
    StepSeconds,
    played_figures,
    step_metrics,
    token_staleness,
)
from cast_ray.training.update import Learned, SkippedUpdates, learn
from cast_ray.training.workers import Workers


class TrainingLoop:
    """Takes a run's steps. Weights of version v play step v; version 1 is the start model."""

    def __init__(
        self,
        run: Run,
        workers: Workers,
        learner: RecoveringLearner,
        *,
        monitor: RunMonitor,
        recoveries: RecoveryLog,
        exporter: MetricsExporter,
    ) -> None:
        """Bring the learner to the newest checkpoint; play nothing yet.

        Raises:
            RunDirectoryError: the checkpoint counts on what is not there.
        """
        config, directory = run.config, run.directory
        self._run, self._workers, self._learner = run, workers, learner
        self._monitor, self._recoveries, self._exporter = monitor, recoveries, exporter
        self._counted: Counter[Kind] = Counter()
        directory.tidy_trajectories()
        state = learner.call(lambda group: restore(run, group))
        self.steps_done = state.step
        learner.set_restore(self._bring_back)
        self._alarm = LogprobAlarm(config.sync, healthy=state.healthy_logprob_abs_diff)
        self._skipped = SkippedUpdates(
            most=config.learner.max_skipped_updates, in_a_row=state.skipped_updates
        )
        self._last_logged = max(directory.last_logged_step, state.step)
        rows = [row for row in read_metrics(directory.metrics) if row.step <= self._last_logged]
        self.metrics = MetricsLog(directory.metrics, directory.events, rows=rows)
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
        """Learn from the steps that are logged and in no checkpoint; send the engines the weights.

        Raises:
            WeightSyncError: an engine does not hold what was sent.
        """
        for step in range(self.steps_done + 1, self._last_logged + 1):
            self._run.progress.phase(f"learning again from the trajectories of step {step}")
            started = time.perf_counter()
            table = self._run.directory.read_trajectories(step)
            played = self._credited(
                table.select(SCORED_SCHEMA.names), step, _dropped_groups_of(table)
            )
            learned = self._learn(step, played.batch)
            if self.metrics.row_of(step) is None:
                total = time.perf_counter() - started
                seconds = StepSeconds(total=total, learner=learned.seconds, sync=0.0)
                row = step_metrics(
                    played,
                    learned,
                    UNSEEN_FIGURES,
                    step=step,
                    layer_error=math.nan,
                    seconds=seconds,
                )
                self._keep(row)
        self._sync(self.steps_done + 1)
        last = self.metrics.row_of(self.steps_done)
        if last is not None and last.validation_success is None:
            self.validate(self.steps_done)

    def take_step(self, step: int) -> StepMetrics:
        """Take one step and return its row, which is written.

        Raises:
            CastRayError: whatever ends the run; what was played is kept.
        """
        started, first_look = time.perf_counter(), self._monitor.look()
        self._schedule.issue_through(step)
        scored, dropped = self._schedule.take(step, on_group=self._run.progress.rollout)
        played = self._credited(scored, step, dropped)
        self._check_staleness(played.batch, step)
        self._run.directory.write_trajectories(step, _with_dropped_groups(played))
        learned = self._learn(step, played.batch)
        layer_error = self._layer_error
        sync_seconds = self._sync(step + 1)
        if self._run.config.max_staleness:
            self._schedule.issue_through(step + 1)
        seconds = StepSeconds(
            total=time.perf_counter() - started, learner=learned.seconds, sync=sync_seconds
        )
        self._monitor.look()
        figures = played_figures(self._monitor.looks_since(first_look), self._new_recoveries())
        row = step_metrics(
            played, learned, figures, step=step, layer_error=layer_error, seconds=seconds
        )
        self._keep(row)
        self.validate(step)
        return self.metrics.row_of(step) or row

    def validate(self, step: int) -> None:
        """Validate after a step if it is due; with asynchronous rollouts nothing waits for it."""
        self._validation.settle(self._validated, wait=self._validation.is_due(step))
        if self._validation.is_due(step):
            self._validation.begin(step)
        self._validation.settle(self._validated, wait=self._run.config.max_staleness == 0)

    def save_checkpoint(self) -> None:
        """Keep all that training needs to go on after the last step that was taken."""
        started = time.perf_counter()
        self._run.send_all()  # a checkpoint counts on the trajectories that led to it
        directory, step = self._run.directory, self.steps_done
        state = training_state(
            self._run,
            step=step,
            healthy=self._alarm.healthy,
            skipped_updates=self._skipped.in_a_row,
        ).to_json()
        place = directory.place(directory.checkpoint(step))
        self._learner.call(lambda group: group.save_checkpoint(place, state))
        directory.drop_old_checkpoints(step, kept=self._run.config.checkpoints_kept)
        self._amend(step, seconds_checkpoint=time.perf_counter() - started)

    def close(self) -> None:
        """Wait for a validation that is under way, and close the files."""
        self._validation.settle(self._validated, wait=True)
        self.metrics.close()

    def _credited(self, scored: pa.Table, step: int, dropped_groups: int) -> PlayedStep:
        batch, summary = add_credit(scored, self._run.config, step=step)
        return PlayedStep(batch=batch, dropped_groups=dropped_groups, credit=summary)

    def _learn(self, step: int, batch: pa.Table) -> Learned:
        """Take a step's updates, from the start again if the learner is lost in the middle."""
        run = self._run
        # Old weights differ from the learner's by what was learned since: no fault of an engine's.
        is_fresh = int(token_staleness(batch, step=step).max(initial=0)) == 0
        try:
            with self._workers.engines_at_rest():
                learned = self._learner.call(
                    lambda group: learn(
                        group,
                        batch,
                        self._workers.tokenizer,
                        run.config,
                        step=step,
                        check=self._alarm.judge if is_fresh else lambda difference: None,
                    )
                )
        except (WeightSyncError, TrajectoryError):
            # A resumed run must not come upon the same trajectories again in the log.
            run.directory.set_aside(step)
            raise
        try:
            self._skipped.judge(learned.updates, run.directory.inspection(step))
        except LearnerError:
            run.directory.set_aside(step)
            raise
        self.steps_done = step
        return learned

    def _bring_back(self, group: LearnerGroup) -> None:
        """Bring new ranks to the weights after ``steps_done``."""
        point = self._run.directory.resume_point()
        if point.checkpoint is not None:
            group.load_checkpoint(point.checkpoint)
        for step in range(point.step + 1, self.steps_done + 1):
            batch = self._run.directory.read_trajectories(step)
            learn(group, batch, self._workers.tokenizer, self._run.config, step=step)

    def _sync(self, version: int) -> float:
        """Give the learner's weights to the engines and return the seconds that this took."""
        workers = self._workers
        timeout_s = self._run.config.engine.update_timeout_s
        started = time.perf_counter()

        def sync(group: LearnerGroup) -> float:
            manifest = group.publish_weights(
                workers.weights_dir, version=version, dtype=workers.dtype
            )
            return workers.sync(manifest, group, timeout_s=timeout_s)

        # In one call: a rank that is lost while it sends has to publish again before it sends.
        self._layer_error = self._learner.call(sync)
        return time.perf_counter() - started

    def _keep(self, row: StepMetrics) -> None:
        self.metrics.append(row)
        self._exporter.step(row)

    def _new_recoveries(self) -> Counter[Kind]:
        """Return the recoveries since the last row, by kind."""
        counts = Counter(self._recoveries.counts)
        new, self._counted = counts - self._counted, counts
        return new

    def _check_staleness(self, batch: pa.Table, step: int) -> None:
        """Raise TrajectoryError if anything is older than the bound: the schedule forbids it."""
        bound = self._run.config.max_staleness
        found = int(token_staleness(batch, step=step).max(initial=0))
        if found > bound:
            raise TrajectoryError(
                f"a token of step {step} was written by weights {found} steps old, and "
                f"max_staleness is {bound}: a fault of the rollouts; nothing was trained on it"
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


def _with_dropped_groups(played: PlayedStep) -> pa.Table:
    """Return the batch with a note that a replay needs and no column can tell."""
    note = {_DROPPED_GROUPS: str(played.dropped_groups).encode()}
    return played.batch.replace_schema_metadata(note)


def _dropped_groups_of(table: pa.Table) -> int:
    return int((table.schema.metadata or {}).get(_DROPPED_GROUPS, b"0"))  # 0: of older runs


_DROPPED_GROUPS = b"dropped_groups"
