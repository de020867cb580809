"""Which step's groups are out, by the one number that says how stale a token may be.

Version v plays step v. The groups of step s are issued as soon as version s - max_staleness is on
the engines, and ask for no older one: what a step trains on is within the bound because nothing
else was ever written, not because something was thrown away.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from cast_ray.config import TrainConfig
from cast_ray.jobs import evaluate
from cast_ray.jobs.boards import PuzzleSampler
from cast_ray.jobs.dynamic_sampling import play_informative
from cast_ray.jobs.rollouts import RolloutCollector, Ticket
from cast_ray.puzzles import Puzzle
from cast_ray.rollout import EpisodeSpec


class RolloutSchedule:
    """Issues the groups of training steps, ahead by ``max_staleness``, and hands them over."""

    def __init__(
        self,
        collector: RolloutCollector,
        sampler: PuzzleSampler,
        config: TrainConfig,
        *,
        first_step: int,
        group_file: Callable[[int, int], Path] | None,
    ) -> None:
        """Issue nothing yet.

        Args:
            collector: plays groups.
            sampler: draws their puzzles.
            config: of the run.
            first_step: that is to be played.
            group_file: from step and group to the file that keeps it until the step is trained
                on; None = groups are not logged.
        """
        self._collector, self._sampler, self._config = collector, sampler, config
        self._group_file = group_file
        self._next_step = first_step
        self._issued: dict[int, Ticket] = {}

    def issue_through(self, version: int) -> None:
        """Send out the first draw of every step that may be played with weights of ``version``."""
        last = min(version + self._config.max_staleness, self._config.steps)
        while self._next_step <= last:
            step = self._next_step
            self._issued[step] = self._issue(step, self._sampler.draw(step), first_group=0)
            self._next_step += 1

    def take(self, step: int, *, on_group: Callable[[int, int], None]) -> tuple[pa.Table, int]:
        """Return a step's scored trajectories, and how many groups dynamic sampling dropped.

        Raises:
            RemoteTimeout: they did not come back in ``rollout.timeout_s``.
            CastRayError: whatever ended the collection.
        """
        rollout = self._config.rollout

        def play(puzzles: list[Puzzle], first_group: int) -> pa.Table:
            ticket = self._issued.pop(step, None) if first_group == 0 else None
            if ticket is None:
                ticket = self._issue(step, puzzles, first_group=first_group)
            return self._collector.finished(ticket, timeout_s=rollout.timeout_s, on_group=on_group)

        return play_informative(
            functools.partial(self._sampler.draw, step),
            play,
            num_groups=rollout.puzzles_per_step,
            further_draws=rollout.dynamic_sampling,
        )

    def _issue(self, step: int, puzzles: list[Puzzle], *, first_group: int) -> Ticket:
        groups = evaluate.episode_groups(
            puzzles,
            attempts=self._config.rollout.group_size,
            step=step,
            seed=self._config.seed,
            purpose="rollout",
            first_group=first_group,
            min_weight_version=max(step - self._config.max_staleness, 1),
        )
        return self._collector.issue(
            groups, evaluate.training_sampling(self._config), log_to=self._place_of
        )

    def _place_of(self, group: list[EpisodeSpec]) -> Path | None:
        if self._group_file is None:
            return None
        return self._group_file(group[0].step, group[0].group)
