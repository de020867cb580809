"""Collects groups from the pool in a background thread, while the job does other work.

The thread takes every group that ends and writes each logged group to disk before it counts as
finished, so what is played while the learner works survives the driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cast_ray.errors import DamagedFileError, RemoteTimeout
from cast_ray.parquet import write_table
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.trajectory import SCORED_SCHEMA
from cast_ray.runs.run_directory import read_batch

if TYPE_CHECKING:  # Ray takes a second
    from solver_actors.actors.pool import RolloutPool

logger = logging.getLogger(__name__)

_POLL_S = 0.2
"""Longest time until the thread notices that it should end."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Groups that were issued together."""

    num_groups: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    """One per finished group."""

    @property
    def is_finished(self) -> bool:
        """Return whether all groups have ended, and are on disk if they are logged."""
        return len(self.batches) == self.num_groups


class RolloutCollector:
    """Issues groups and returns what was played. ``close`` ends the thread, not the pool."""

    def __init__(self, pool: RolloutPool) -> None:
        self._pool = pool
        self._tickets: dict[int, tuple[Ticket, Path | None]] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._collect, name="collector", daemon=True)
        self._thread.start()

    def issue(
        self,
        groups: Sequence[list[EpisodeSpec]],
        sampling: Sampling,
        *,
        log_to: Callable[[list[EpisodeSpec]], Path | None] = lambda group: None,
    ) -> Ticket:
        """Start playing groups and return at once.

        Args:
            groups: each with at least one episode.
            sampling: how answers are drawn.
            log_to: returns the Parquet file that a group is written to before it counts as
                finished; None = it is not logged. A group whose file already exists is read
                instead of being played, unless the file is damaged.
        """
        ticket = Ticket(len(groups))
        for group in groups:
            path = log_to(group)
            if path is not None and path.is_file() and (stored := _undamaged(path)) is not None:
                with self._changed:
                    ticket.batches += stored.to_batches()
                continue
            with self._changed:
                self._tickets[id(group)] = (ticket, path)
            self._pool.submit(group, sampling)
        return ticket

    def finished(
        self, ticket: Ticket, *, timeout_s: float, on_group: Callable[[int, int], None]
    ) -> pa.Table:
        """Return a ticket's scored trajectories, ordered by group and episode.

        Args:
            ticket: from ``issue``.
            timeout_s: longest time without progress, from now on: no group ends, and no turn is
                asked for. It is noticed after at most twice that time.
            on_group: called with the number of finished groups and the number of all.

        Raises:
            RemoteTimeout: there was no progress.
            CastRayError: the collection failed.
        """
        num_reported, num_turns = -1, -1.0
        while num_reported < ticket.num_groups:
            with self._changed:
                has_changed = self._changed.wait_for(
                    lambda seen=num_reported: len(ticket.batches) > seen or self._failure,
                    timeout_s,
                )
                num_ended, failure = len(ticket.batches), self._failure
            if failure is not None and num_ended < ticket.num_groups:
                raise failure
            if has_changed:
                num_reported = num_ended
                on_group(num_ended, ticket.num_groups)
                continue
            before, num_turns = num_turns, self._pool.counters().get("num_requests", 0.0)
            if num_turns <= before:
                raise RemoteTimeout(
                    f"{ticket.num_groups - num_ended} of {ticket.num_groups} groups are not played "
                    f"and no turn was for {timeout_s:.0f} s: raise rollout.timeout_s, or look for "
                    "the cause in the engine's log"
                )
        table = pa.Table.from_batches(ticket.batches, schema=SCORED_SCHEMA)
        return table.sort_by([("group", "ascending"), ("episode", "ascending")])

    def play(
        self,
        groups: Sequence[list[EpisodeSpec]],
        sampling: Sampling,
        *,
        timeout_s: float,
        on_group: Callable[[int, int], None],
        log_to: Callable[[list[EpisodeSpec]], Path | None] = lambda group: None,
    ) -> pa.Table:
        """Play groups and return them; see ``issue`` and ``finished``."""
        ticket = self.issue(groups, sampling, log_to=log_to)
        return self.finished(ticket, timeout_s=timeout_s, on_group=on_group)

    def close(self) -> None:
        """End the thread; groups that are still being played are forgotten."""
        self._is_closed = True
        self._thread.join(timeout=30 * _POLL_S)

    def _collect(self) -> None:
        while not self._is_closed:
            try:
                for group, batch in self._pool.collect(timeout_s=_POLL_S):
                    self._keep(group, batch)
            except BaseException as error:  # not swallowed: raised by ``finished``
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return

    def _keep(self, group: list[EpisodeSpec], batch: pa.RecordBatch) -> None:
        ticket, path = self._tickets[id(group)]
        if path is not None:
            write_table(path, pa.Table.from_batches([batch]))
        with self._changed:
            del self._tickets[id(group)]
            ticket.batches.append(batch)
            self._changed.notify_all()


def _undamaged(path: Path) -> pa.Table | None:
    """Return the trajectories of a finished group; None if its file is damaged."""
    try:
        return read_batch(path, SCORED_SCHEMA)
    except DamagedFileError as error:
        logger.warning("%s; the group is played again", error)
        return None
