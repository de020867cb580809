"""The rollout pool: whole groups go out, scored record batches come back, nothing waits between.

A group that its actor's death took along is played again under the same seeds. Nothing here
blocks but ``collect``; one thread may submit while another collects.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from cast_ray.chat import ChatPieces
from cast_ray.errors import ActorLostError, CastRayError
from cast_ray.generation import Generate
from cast_ray.rollout import EpisodeSpec, Sampling
from solver_actors.actors import EnvironmentActor, OracleActor
from solver_actors.pool_counters import ActorCounters
from solver_actors.solvers import get_solver_entry
from solver_actors.teacher import SoftTeacher

logger = logging.getLogger(__name__)

_GROUPS_PER_ACTOR = 1000  # concurrent calls an environment actor accepts
_MAX_RESTARTS = 20
"""Of one actor: an actor that dies more often than this in a run is not dying by accident."""
_MAX_ATTEMPTS = 5
"""At one group: the same group that ends its actor again and again ends the run."""
_FIRST_DELAY_S = 0.25
_LOST = (RayActorError, ObjectLostError, WorkerCrashedError, NodeDiedError, OutOfMemoryError)
"""What a dead process or node leaves behind; anything else is an error of ours."""


@dataclass(slots=True)
class _Pending:
    """A group that is out, or will be when it is due."""

    group: list[EpisodeSpec]
    """As submitted."""
    sampling: Sampling
    attempt: int = 0


class RolloutPool:
    """Environment actors and oracle actors, and the way of a group through them."""

    def __init__(
        self,
        *,
        run_id: str,
        num_environment_actors: int,
        num_oracle_actors: int,
        oracle_max_bytes: int,
        game: str,
        model_dir: str,
        pieces: ChatPieces,
        make_generate: Callable[[], Generate],
        deadlock_ends_episode: bool,
        teacher: SoftTeacher | None = None,
    ) -> None:
        """Start the actors.

        Args:
            run_id: begins the names of all actors.
            num_environment_actors: at least 1.
            num_oracle_actors: at least 1.
            oracle_max_bytes: bound of one oracle's solvers.
            game: its kernels are compiled before an oracle is ready.
            model_dir: holds the tokenizer.
            pieces: the chat template's turn pieces.
            make_generate: makes the way to the engines, inside an actor.
            deadlock_ends_episode: whether an episode ends in a state that its solver proves lost.
                Solvers travel to the environment actors for this alone, and of games that have
                deadlocks alone.
            teacher: judges every turn beside the costs; None = nobody does.
        """
        self._deadlock_ends_episode = deadlock_ends_episode
        self._environments: list[
            Any
        ] = [  # Any: Ray's handles have the actor's methods, and .remote
            EnvironmentActor.options(
                name=f"{run_id}-environment-{index}",
                num_cpus=0,
                max_concurrency=_GROUPS_PER_ACTOR,
                max_restarts=_MAX_RESTARTS,
            ).remote(model_dir=model_dir, pieces=pieces, make_generate=make_generate)
            for index in range(num_environment_actors)
        ]
        self._oracles: list[Any] = [  # Any: as above
            OracleActor.options(
                name=f"{run_id}-oracle-{index}",
                num_cpus=0,
                max_restarts=_MAX_RESTARTS,
                max_task_retries=-1,  # asking twice gives the same answer; restarts are bounded
                # A call to score waits for its rollout: the solvers of groups submitted after it
                # must not wait behind it, or one group would be played after the other.
                allow_out_of_order_execution=True,
            ).remote(max_bytes=oracle_max_bytes, game=game, teacher=teacher)
            for index in range(num_oracle_actors)
        ]
        self._ended: queue.SimpleQueue[tuple[_Pending, Future[pa.RecordBatch]]] = (
            queue.SimpleQueue()
        )
        self._delayed: list[tuple[float, _Pending]] = []
        self.actors = ActorCounters(self._environments, self._oracles)
        self.num_lost_groups = 0

    def submit(self, group: list[EpisodeSpec], sampling: Sampling) -> None:
        """Send out a group; it comes back from ``collect``."""
        self._start(_Pending(group, sampling))

    def collect(self, *, timeout_s: float) -> list[tuple[list[EpisodeSpec], pa.RecordBatch]]:
        """Return the groups that have ended since the last call, scored; wait for one if none has.

        A group that was lost is sent out again after a delay, with ``attempt`` raised.

        Args:
            timeout_s: longest wait; the list is then empty.

        Returns:
            The list object that was submitted, and its episodes as ``SCORED_SCHEMA``.

        Raises:
            ActorLostError: a group was lost too often.
            CastRayError: whatever went wrong in an episode, named by the actor.
        """
        deadline = time.monotonic() + timeout_s
        done: list[tuple[list[EpisodeSpec], pa.RecordBatch]] = []
        while not done:
            self._start_due()
            left = deadline - time.monotonic()
            until_due = min((due for due, _ in self._delayed), default=deadline) - time.monotonic()
            try:
                pending, future = self._ended.get(timeout=max(min(left, until_due), 0.0))
            except queue.Empty:
                if left <= 0:
                    break
                continue
            self._take(pending, future, done)
            while not self._ended.empty():
                self._take(*self._ended.get_nowait(), done)
        return done

    def counters(self, *, timeout_s: float = 30.0) -> dict[str, float]:
        """Return what all actors have done, summed; one that is away keeps its last figures."""
        self.actors.refresh(timeout_s=timeout_s)
        return self.actors.totals()

    def close(self) -> None:
        """End this pool's actors."""
        for actor in (*self._environments, *self._oracles):
            ray.kill(actor)

    def _take(
        self,
        pending: _Pending,
        future: Future[pa.RecordBatch],
        done: list[tuple[list[EpisodeSpec], pa.RecordBatch]],
    ) -> None:
        """Add an ended group to ``done``, or see to it that a lost one is played again."""
        try:
            done.append((pending.group, future.result(timeout=0)))
        except _LOST as error:
            self._play_again(pending, error)
        except RayTaskError as error:
            if isinstance(error.cause, _LOST):
                self._play_again(pending, error.cause)
            elif isinstance(error.cause, CastRayError):
                raise error.cause from None
            else:
                raise

    def _play_again(self, pending: _Pending, error: Exception) -> None:
        first = pending.group[0]
        pending.attempt += 1
        self.num_lost_groups += 1
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if pending.attempt >= _MAX_ATTEMPTS:
            raise ActorLostError(
                f"group {first.group} of step {first.step} was lost {pending.attempt} times: look "
                f"at its environment actor's log ({reason})"
            ) from error
        logger.warning("group %d of step %d is played again: %s", first.group, first.step, reason)
        delay = _FIRST_DELAY_S * 2 ** (pending.attempt - 1)
        self._delayed.append((time.monotonic() + delay, pending))

    def _start_due(self) -> None:
        now = time.monotonic()
        due = [pending for when, pending in self._delayed if when <= now]
        self._delayed = [(when, pending) for when, pending in self._delayed if when > now]
        for pending in due:
            self._start(pending)

    def _start(self, pending: _Pending) -> None:
        group = [
            replace(spec, attempt=spec.attempt + pending.attempt) if pending.attempt else spec
            for spec in pending.group
        ]
        first = group[0]
        environment = self._environments[first.group % len(self._environments)]
        # The same puzzle always meets the same oracle: its table is there.
        oracle = self._oracles[int(first.puzzle.puzzle_id, 16) % len(self._oracles)]
        solver = None
        if self._deadlock_ends_episode and get_solver_entry(first.puzzle.game).has_deadlocks:
            solver = oracle.solver.remote(first.puzzle.game, first.puzzle.board)
        # A group that may be what ended its actor is never repeated by Ray itself. The second time
        # it follows a call that is, and that waits like this until the actor is back.
        back = (
            environment.counters.options(max_task_retries=-1).remote() if pending.attempt else None
        )
        rollout = environment.play_group.remote(group, pending.sampling, solver, back)
        future: Future[pa.RecordBatch] = oracle.score.remote(rollout).future()
        future.add_done_callback(lambda ended: self._ended.put((pending, ended)))
