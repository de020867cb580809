"""A learner that comes back: new ranks, the newest checkpoint, and the updates since then again.

The trajectories of every step are on disk before its first update, and an update follows from
weights and trajectories alone. So the weights that are lost with a rank are computed again, bit for
bit where the ranks are as many and as threaded as before.
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
    """A ``LearnerGroup`` that is made anew when a rank dies or hangs."""

    def __init__(
        self,
        start: Callable[[], LearnerGroup],
        *,
        max_restarts: int,
        on_recovery: Callable[[str, float], None],
    ) -> None:
        """Start the ranks.

        Args:
            start: makes a group with the weights that the run begins with.
            max_restarts: in the run; one more loss ends it.
            on_recovery: is told what was lost and how many seconds it took to be back.

        Raises:
            LearnerError, RemoteTimeout: the ranks do not start. Nothing is tried again here.
        """
        self._start = start
        self._max_restarts, self._on_recovery = max_restarts, on_recovery
        self._restore: Callable[[LearnerGroup], None] = lambda group: None
        self._group = start()
        self.num_restarts = 0

    def set_restore(self, restore: Callable[[LearnerGroup], None]) -> None:
        """Say how a new group is brought to where the lost one was between two calls."""
        self._restore = restore

    def call(self, work: Callable[[LearnerGroup], T]) -> T:
        """Return what ``work`` makes of the group; it is begun again with a new group after a loss.

        Raises:
            LearnerLost: ranks were lost more than ``max_restarts`` times.
            CastRayError: whatever else goes wrong in ``work``.
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
        """Make new ranks and bring them to where the lost ones were, however often that takes."""
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
            except (LearnerError, RemoteTimeout) as again:  # a port taken, a file away: once more
                loss = LearnerLost(str(again))
                continue
            self._on_recovery(str(loss), time.monotonic() - lost_at)
            return
