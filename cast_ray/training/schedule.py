"""Which step's groups are out, by the one number that says how stale a token may be.

Version v plays step v. The groups of step s are issued as soon as version s - max_staleness is on
the engines, and ask for no older one: what a step trains on is within the bound because nothing
else was ever written, not because something was thrown away.

DAPO's dynamic sampling: groups that all solve or none make way for other puzzles.

Success on the validation boards during training: waited for, or beside the next rollouts.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout import specs
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.runs.metrics import keep_validation
from cast_ray.statistics import Success
from cast_ray.training.collector import RolloutCollector, Ticket
from cast_ray.training.run import Run


def play_informative(
    draw: Callable[[int], list[Puzzle]],
    play: Callable[[list[Puzzle], int], pa.Table],
    *,
    num_groups: int,
    further_draws: int,
) -> tuple[pa.Table, int]:
    """Return a step's scored trajectories, and how many groups were played and dropped.

    A group is informative if its rewards differ; the others are replaced, draw by draw. Where too
    few are found, uninformative ones fill the step up to its full number, those played first.

    Args:
        draw: from the number of a draw to its puzzles, ``num_groups`` of them; 0 is the first.
        play: plays puzzles as groups that are numbered from the second argument on, and returns
            them ordered by group.
        num_groups: groups of the step.
        further_draws: most draws after the first; 0 = the step is what comes up.
    """
    table, num_played = play(draw(0), 0), num_groups
    for number in range(1, further_draws + 1):
        num_missing = num_groups - len(informative_groups(table))
        if num_missing == 0:
            break
        more = play(draw(number)[:num_missing], num_played)
        table = pa.concat_tables([table, more])
        num_played += num_missing
    if num_played == num_groups:
        return table, 0
    informative = informative_groups(table)
    others = np.setdiff1d(table["group"].to_numpy(), informative)
    kept = np.concatenate([informative, others[: num_groups - len(informative)]])
    is_kept = np.isin(table["group"].to_numpy(), kept)
    return table.filter(pa.array(is_kept)).combine_chunks(), num_played - num_groups


def informative_groups(table: pa.Table) -> np.ndarray:
    """Return the numbers of the groups whose rewards are not all the same, ascending."""
    groups, rewards = table["group"].to_numpy(), table["reward"].to_numpy()
    numbers = np.unique(groups)
    differ = [np.ptp(rewards[groups == number]) > 0 for number in numbers]
    return numbers[np.array(differ, dtype=bool)]


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
        groups = specs.episode_groups(
            self._run.boards.validation,
            attempts=config.evaluation.validation_attempts,
            step=step,
            seed=config.seed,
            purpose="validation",
            min_weight_version=step + 1,
        )
        ticket = self._collector.issue(groups, specs.evaluation_sampling(config))
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
        success = specs.success_of(table, seed=self._run.config.seed)
        on_result(step, success, time.perf_counter() - started)


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
        groups = specs.episode_groups(
            puzzles,
            attempts=self._config.rollout.group_size,
            step=step,
            seed=self._config.seed,
            purpose="rollout",
            first_group=first_group,
            min_weight_version=max(step - self._config.max_staleness, 1),
        )
        return self._collector.issue(
            groups, specs.training_sampling(self._config), log_to=self._place_of
        )

    def _place_of(self, group: list[EpisodeSpec]) -> Path | None:
        if self._group_file is None:
            return None
        return self._group_file(group[0].step, group[0].group)
