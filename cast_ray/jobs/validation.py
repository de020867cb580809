"""Success on the validation boards during training: waited for, or beside the next rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable

from cast_ray.jobs import evaluate
from cast_ray.jobs.rollouts import RolloutCollector, Ticket
from cast_ray.jobs.run import Run
from cast_ray.metrics import Success
from cast_ray.validation_log import keep_validation


class Validation:
    """One validation at a time."""

    def __init__(self, run: Run, collector: RolloutCollector) -> None:
        self._run, self._collector = run, collector
        self._open: tuple[int, Ticket, float] | None = None

    def is_due(self, step: int) -> bool:
        """Whether a step is one after which the policy is validated."""
        every = self._run.config.evaluation.every
        return bool(every) and step % every == 0

    def begin(self, step: int) -> None:
        """Ask for the episodes that judge the weights after ``step``."""
        config = self._run.config
        groups = evaluate.episode_groups(
            self._run.boards.validation,
            attempts=config.evaluation.validation_attempts,
            step=step,
            seed=config.seed,
            purpose="validation",
            min_weight_version=step + 1,
        )
        ticket = self._collector.issue(groups, evaluate.evaluation_sampling(config))
        self._open = (step, ticket, time.perf_counter())

    def settle(self, on_result: Callable[[int, Success, float], None], *, wait: bool) -> None:
        """Hand over the step, the result and its seconds if there is one, or wait for it.

        Raises:
            RemoteTimeout: the episodes did not come back in ``rollout.timeout_s``.
        """
        if self._open is None:
            return
        step, ticket, started = self._open
        if not wait and not ticket.is_finished:
            return
        table = self._collector.finished(
            ticket,
            timeout_s=self._run.config.rollout.timeout_s,
            on_group=self._run.progress.rollout,
        )
        self._open = None
        keep_validation(self._run.directory.validation, step, table)
        success = evaluate.success_of(table, seed=self._run.config.seed)
        on_result(step, success, time.perf_counter() - started)
