"""The steps of a run: trajectories, updates, weights; and the way back after a loss.

What a step trains on is written to disk before its first update. A learner that was lost, and a
driver that was, come back by the same road: the newest checkpoint, then the logged steps again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa

from cast_ray.errors import LearnerError, WeightSyncError
from cast_ray.jobs.boards import PuzzleSampler
from cast_ray.jobs.learning import Learned, learn
from cast_ray.jobs.monitor import RunMonitor
from cast_ray.jobs.recovering_learner import RecoveringLearner
from cast_ray.jobs.recoveries import RecoveryLog
from cast_ray.jobs.resume import restore, training_state
from cast_ray.jobs.rollout_schedule import RolloutSchedule
from cast_ray.jobs.run import Run
from cast_ray.jobs.training_step import PlayedStep, Stopwatch, credit, logged_step, step_metrics
from cast_ray.jobs.updates import SkippedUpdates
from cast_ray.jobs.validation import Validation
from cast_ray.jobs.workers import SyncResult, Workers
from cast_ray.learner_group import LearnerGroup
from cast_ray.metrics import MetricsLog, StepMetrics, read_metrics
from cast_ray.sync_check import LogprobAlarm, LogprobDifference
from cast_ray.trajectory import max_staleness_of


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
    ) -> None:
        """Bring the learner to the newest checkpoint; play nothing yet.

        Raises:
            RunDirectoryError: the checkpoint counts on what is not there.
        """
        config, directory = run.config, run.directory
        self._run, self._workers, self._learner = run, workers, learner
        self._monitor, self._recoveries = monitor, recoveries
        directory.clear_partial_files()
        state = learner.call(lambda group: restore(run, group))
        self.steps_done = state.step
        learner.comes_back_by(self._bring_back)
        self._alarm = LogprobAlarm(
            warn_ratio=config.sync.warn_ratio,
            stop_ratio=config.sync.stop_ratio,
            healthy=state.healthy_logprob_abs_diff,
        )
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
        self.validation = Validation(run, workers.collector, self.metrics)
        self._synced: SyncResult | None = None
