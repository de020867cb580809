"""When the groups of a training step and of a validation are played.

Weights of version v play step v. The groups of step s are issued as soon as the engines hold
version s - max_staleness, and require at least that version. So no token is ever staler than
``max_staleness`` allows, and none has to be discarded.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from cast_ray.algorithms.credit import rewards_of
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout import specs
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
    reward_function: str = "",
) -> tuple[pa.Table, int]:
    """Return a step's scored trajectories, and how many groups were played and dropped.

    DAPO's dynamic sampling: a group is informative if its rewards differ; the others are replaced,
    draw by draw. If too few are found, the uninformative groups that were played first fill the
    step.

    Args:
        draw: returns the ``num_groups`` puzzles of a draw; draw 0 is the first.
        play: plays puzzles as groups, numbered from its second argument, and returns them ordered
            by group.
        num_groups: groups of the step.
        further_draws: most draws after the first; 0 = every group is kept.
        reward_function: ``reward.function``.
    """
    table, num_played = play(draw(0), 0), num_groups
    for number in range(1, further_draws + 1):
        num_missing = num_groups - len(informative_groups(table, reward_function))
        if num_missing == 0:
            break
        table = pa.concat_tables([table, play(draw(number)[:num_missing], num_played)])
        num_played += num_missing
    if num_played == num_groups:
        return table, 0
    informative = informative_groups(table, reward_function)
    others = np.setdiff1d(table["group"].to_numpy(), informative)
    kept = np.concatenate([informative, others[: num_groups - len(informative)]])
    is_kept = np.isin(table["group"].to_numpy(), kept)
    return table.filter(pa.array(is_kept)).combine_chunks(), num_played - num_groups


def informative_groups(table: pa.Table, reward_function: str = "") -> np.ndarray:
    """Return the numbers of the groups whose rewards differ, ascending."""
    groups, rewards = table["group"].to_numpy(), rewards_of(table, reward_function)
    numbers = np.unique(groups)
    differ = [np.ptp(rewards[groups == number]) > 0 for number in numbers]
    return numbers[np.array(differ, dtype=bool)]


class Validation:
    """Success on the validation boards; one validation at a time."""

    def __init__(self, run: Run, collector: RolloutCollector) -> None:
        self._run, self._collector = run, collector
        self._open: tuple[int, Ticket, float] | None = None

    def is_due(self, step: int) -> bool:
        """Return whether the policy is validated after this step."""
        every = self._run.config.evaluation.every
        return bool(every) and step % every == 0

    def begin(self, step: int) -> None:
        """Start the episodes that evaluate the weights after ``step``."""
        config = self._run.config
        groups = specs.episode_groups(
            self._run.boards.validation,
            attempts=config.evaluation.validation_attempts,
            step=step,
            seed=config.seed,
            purpose="validation",
            min_weight_version=step + 1,
        )
        ticket = self._collector.issue(
            groups,
            specs.evaluation_sampling(config),
            log_to=lambda group: self._run.directory.evaluation_group(
                "validation", step, group[0].group
            ),
        )
        self._open = (step, ticket, time.perf_counter())

    def settle(self, on_result: Callable[[int, Success, float], None], *, wait: bool) -> None:
        """Call ``on_result`` with step, result and seconds if a validation has ended.

        Args:
            on_result: called at most once.
            wait: whether to wait for a validation that is under way.

        Raises:
            RemoteTimeout: there was no progress for ``rollout.timeout_s``.
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
        self._run.directory.drop_evaluation_groups("validation")
        success = specs.success_of(table, seed=self._run.config.seed)
        on_result(step, success, time.perf_counter() - started)


class RolloutSchedule:
    """Issues the groups of training steps, up to ``max_staleness`` steps ahead."""

    def __init__(
        self,
        collector: RolloutCollector,
        sampler: PuzzleSampler,
        config: TrainConfig,
        *,
        first_step: int,
        group_file: Callable[[int, int], Path | None],
    ) -> None:
        """Issue nothing yet.

        Args:
            collector: plays groups.
            sampler: draws their puzzles.
            config: of the run.
            first_step: first step to play.
            group_file: returns the file that keeps a group (step, number) until the step is
                trained on; None = it is not logged.
        """
        self._collector, self._sampler, self._config = collector, sampler, config
        self._group_file = group_file
        self._next_step = first_step
        self._issued: dict[int, Ticket] = {}

    def issue_through(self, version: int) -> None:
        """Issue the first draw of every step that weights of ``version`` may play."""
        last = min(version + self._config.max_staleness, self._config.steps)
        while self._next_step <= last:
            step = self._next_step
            self._issued[step] = self._issue(step, self._sampler.draw(step), first_group=0)
            self._next_step += 1

    def take(self, step: int, *, on_group: Callable[[int, int], None]) -> tuple[pa.Table, int]:
        """Return a step's scored trajectories, and how many groups dynamic sampling dropped.

        Raises:
            RemoteTimeout: they did not end within ``rollout.timeout_s``.
            CastRayError: the collection failed.
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
            reward_function=self._config.reward.function,
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
            groups,
            specs.training_sampling(self._config),
            log_to=lambda group: self._group_file(group[0].step, group[0].group),
        )
