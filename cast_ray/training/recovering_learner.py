"""A learner that recovers: new ranks, the newest checkpoint, then the updates since then again.

The trajectories of every step are on disk before its first update, and an update depends on weights
and trajectories alone. So lost weights are recomputed, bit for bit if the new ranks have the same
number and threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from cast_ray.errors import LearnerError, LearnerLost, RemoteTimeout
from cast_ray.learner.group import LearnerGroup

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RecoveringLearner:
    """A ``LearnerGroup`` that is replaced when a rank dies or hangs."""

    def __init__(
        self,
        start: Callable[[], LearnerGroup],
        *,
        max_restarts: int,
        on_recovery: Callable[[str, float], None],
    ) -> None:
        """Start the ranks.

        Args:
            start: starts a group with the weights that the run begins with.
            max_restarts: per run; one more loss ends the run.
            on_recovery: called with what was lost and how many seconds the recovery took.

        Raises:
            LearnerError, RemoteTimeout: the ranks do not start; this is not retried.
        """
        self._start = start
        self._max_restarts, self._on_recovery = max_restarts, on_recovery
        self._restore: Callable[[LearnerGroup], None] = lambda group: None
        self._group = start()
        self.num_restarts = 0

    def set_restore(self, restore: Callable[[LearnerGroup], None]) -> None:
        """Set how a new group reaches the state that the lost one had after the last call."""
        self._restore = restore

    def call(self, work: Callable[[LearnerGroup], T]) -> T:
        """Return the result of ``work``; after a loss, call it again with a new group.

        Raises:
            LearnerLost: ranks were lost more than ``max_restarts`` times.
            CastRayError: ``work`` failed for another reason.
        """
        while True:
            try:
                return work(self._group)
            except LearnerLost as loss:
                self._replace(loss)

    def close(self) -> None:
        """End the ranks."""
        self._group.close()

    def _replace(self, loss: LearnerLost) -> None:
        """Start new ranks and restore the lost ones' state; retry up to ``max_restarts`` times."""
        lost_at = time.monotonic()
        while True:
            self._group.close()
            self.num_restarts += 1
            if self.num_restarts > self._max_restarts:
                raise loss
            logger.warning("%s; starting new ranks", loss)
            try:
                self._group = self._start()
                self._restore(self._group)
            except (LearnerError, RemoteTimeout) as again:  # e.g. a port is taken: retry
                loss = LearnerLost(str(again))
                continue
            self._on_recovery(str(loss), time.monotonic() - lost_at)
            return
