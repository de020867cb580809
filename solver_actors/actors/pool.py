"""The rollout pool: it sends out groups and returns scored record batches, without waiting between.

A group that was lost with its actor is played again under the same seeds. Only ``collect`` blocks;
one thread may submit while another collects. The actors' places are reserved on as many nodes as
possible, and restarted actors keep theirs.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import ActorLostError, CastRayError, RemoteTimeout
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat_template import ChatPieces
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.generate import Generate
from solver_actors.actors.actors import ASKED, EnvRunner, OracleActor
from solver_actors.actors.membership import ActorCounters, Member, Membership
from solver_actors.registry import has_deadlocks
from solver_actors.teacher import SoftTeacher
from solver_actors.value_net.scale import LossTest, ValueNetOracle, has_loss_test


@dataclass(frozen=True, slots=True)
class Reservation:
    """A placement group with a bundle for each of some actors."""

    group: PlacementGroup
    strategies: Sequence[PlacementGroupSchedulingStrategy]
    """The bundles, in order."""

    @classmethod
    def reserve(
        cls, name: str, *, count: int, num_cpus: float, num_gpus: float = 0.0
    ) -> Reservation:
        """Request places on as many nodes as possible and return at once; actors wait for theirs.

        Args:
            name: of the placement group.
            count: places, all granted together.
            num_cpus, num_gpus: of each.
        """
        bundle = {"CPU": num_cpus} | ({"GPU": num_gpus} if num_gpus else {})
        group = placement_group([bundle] * count, strategy="SPREAD", name=name)
        return cls(group, [PlacementGroupSchedulingStrategy(group, i) for i in range(count)])


logger = logging.getLogger(__name__)

_OTHER_CALLS = 16
"""Other calls that an env runner answers while it plays its groups."""
_MAX_RESTARTS = 20
"""Of one actor: one that dies more often than this in a run has a fault."""
_MAX_ATTEMPTS = 5
"""At one group: a group that ends its actor this often ends the run."""
_FIRST_DELAY_S = 0.25
_LOST = (RayActorError, ObjectLostError, WorkerCrashedError, NodeDiedError, OutOfMemoryError)
"""Errors of a dead process or node; any other error is a bug."""


@dataclass(slots=True)
class _Pending:
    """A group that is being played, or waits to be."""

    group: list[EpisodeSpec]
    """As submitted."""
    sampling: Sampling
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class _Event:
    """What a thread of Ray reports."""

    member: Member
    future: Future[Any]
    """Done: a scored group, or a member's answer to a ping."""
    pending: _Pending | None = None
    """The group; None = a ping was answered."""


class RolloutPool:
    """Env runners and oracle actors, and how a group passes through them."""

    def __init__(
        self,
        *,
        run_id: str,
        resources: ResourcesConfig,
        oracle_max_bytes: int,
        game: str,
        model_dir: str,
        pieces: ChatPieces,
        make_generate: Callable[[int], Generate],
        deadlock_ends_episode: bool,
        teacher: SoftTeacher | None = None,
        value_net: ValueNetOracle | None = None,
        oracle: str = "exact",
        rescue: str = "cost",
        sources: Mapping[str, bytes] = {},
    ) -> None:
        """Start the actors without waiting for them.

        Args:
            run_id: prefix of all actor names.
            resources: how many actors there are, and what Ray reserves for each. The env runners of
                the start are placed together, spread over the nodes; the others join when there is
                room.
            oracle_max_bytes: bound of one oracle's solvers.
            game: its kernels are compiled before an oracle is ready.
            model_dir: holds the tokenizer.
            pieces: the chat template's turn pieces.
            make_generate: makes the connection to the engines, inside the actor of that number.
            deadlock_ends_episode: whether an episode ends in a state that its solver proves lost.
                Solvers are sent to the env runners only for this, and only for games with
                deadlocks.
            teacher: rates every turn, in addition to the costs; None = no teacher.
            value_net: replaces the exact solvers; None = they are used.
            oracle: of the configuration; there are no oracle actors unless they are asked.
            rescue: ``advantage.rescue``, for ``oracle=expected``.
            sources: of an environment of the user's in a file (``cast_ray.functions``).
        """
        self._deadlock_ends_episode = deadlock_ends_episode
        self._value_net = [] if value_net is None else [ray.put(value_net)]
        self._run_id, self._resources = run_id, resources
        self._make_environment = functools.partial(
            EnvRunner.options,
            num_cpus=resources.cpus_per_env_runner,
            max_concurrency=resources.groups_per_env_runner + _OTHER_CALLS,
            max_restarts=_MAX_RESTARTS,
        )
        self._environment_arguments = {
            "model_dir": model_dir,
            "pieces": pieces,
            "make_generate": make_generate,
            "oracle": oracle,
            "sources": sources,
        }
        self._places: list[Reservation] = []
        if oracle in ASKED:
            self._places.append(
                Reservation.reserve(
                    f"{run_id}-oracles",
                    count=resources.oracle_actors,
                    num_cpus=resources.cpus_per_oracle_actor,
                    num_gpus=resources.gpus_per_oracle_actor,
                )
            )
        self._oracles: list[Any] = [  # Any: as above
            OracleActor.options(
                name=f"{run_id}-oracle-{index}",
                num_cpus=resources.cpus_per_oracle_actor,
                num_gpus=resources.gpus_per_oracle_actor,
                scheduling_strategy=place,
                max_restarts=_MAX_RESTARTS,
                max_task_retries=-1,  # asking twice gives the same answer; restarts are bounded
                # A call to score waits for its rollout. The solvers of later groups must not wait
                # behind it, or groups would be played one by one.
                allow_out_of_order_execution=True,
            ).remote(
                max_bytes=oracle_max_bytes,
                game=game,
                teacher=teacher,
                is_exact=not self._value_net,
                expected=rescue if oracle == "expected" else "",
            )
            for places in self._places
            for index, place in enumerate(places.strategies)
        ]
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._delayed: list[tuple[float, _Pending]] = []
        self._lock = threading.Lock()  # of the two below
        self._waiting: deque[_Pending] = deque()
        self._members = Membership(
            groups_per_actor=resources.groups_per_env_runner,
            on_answer=lambda member, answer: self._events.put(_Event(member, answer)),
        )
        self._add_environments(resources.env_runners_at_start, together=True)
        self.actors = ActorCounters(self._members, self._oracles)
        self.num_lost_groups = 0

    def expect_more(self) -> None:
        """Request places for the actors that the run does not start with; they join later.

        Call it after the other parts of the run have their places, or it would take them.
        """
        missing = self._resources.env_runners - self._resources.env_runners_at_start
        for _ in range(missing):
            self._add_environments(1, together=False)

    def wait_until_there(self, count: int, *, timeout_s: float) -> None:
        """Return when ``count`` env runners have answered; call it before ``collect``.

        Raises:
            RemoteTimeout: they did not answer in time.
            ActorLostError: none is left.
        """
        deadline = time.monotonic() + timeout_s
        while self._members.num_there < count:
            event = self._next_event(deadline)
            if event is not None:
                self._take(event, [])
                self._members.check_enough(count)
            elif time.monotonic() >= deadline:
                raise RemoteTimeout(
                    f"{self._members.num_there} of {count} env runners answered within "
                    f"{timeout_s:g} s: see ray status, and their logs"
                )

    def submit(self, group: list[EpisodeSpec], sampling: Sampling) -> None:
        """Send out a group, now or when an actor is free; it comes back from ``collect``."""
        with self._lock:
            self._waiting.append(_Pending(group, sampling))
        self._give_out()

    def collect(self, *, timeout_s: float) -> list[tuple[list[EpisodeSpec], pa.RecordBatch]]:
        """Return the groups that ended since the last call, scored; wait for one if there is none.

        A group that was lost is sent out again after a delay, with ``attempt`` raised.

        Args:
            timeout_s: longest wait; the list is then empty.

        Returns:
            The list object that was submitted, and its episodes as ``SCORED_SCHEMA``.

        Raises:
            ActorLostError: a group was lost too often.
            CastRayError: an error in an episode, as the actor reported it.
        """
        deadline = time.monotonic() + timeout_s
        done: list[tuple[list[EpisodeSpec], pa.RecordBatch]] = []
        while not done:
            self._start_due()
            due = min((due for due, _ in self._delayed), default=deadline)
            event = self._next_event(min(due, deadline))
            if event is None:
                if time.monotonic() >= deadline:
                    break
                continue
            self._take(event, done)
            while not self._events.empty():
                self._take(self._events.get_nowait(), done)
            self._give_out()
        return done

    def counters(self, *, timeout_s: float = 30.0) -> dict[str, float]:
        """Return the sums of all counters; an actor that does not answer keeps its last figures."""
        self.actors.refresh(timeout_s=timeout_s)
        return self.actors.totals()

    def close(self) -> None:
        """End this pool's actors."""
        for actor in (*(member.actor for member in self._members), *self._oracles):
            ray.kill(actor)
        for places in self._places:
            remove_placement_group(places.group)  # Ray ends what still runs there

    def _next_event(self, until: float) -> _Event | None:
        """Return the next event; None if there was none by then, or a ping is due."""
        with self._lock:
            self._members.ping_due()
            until = min(until, self._members.next_ping)
        try:
            return self._events.get(timeout=max(until - time.monotonic(), 0.0))
        except queue.Empty:
            return None

    def _add_environments(self, count: int, *, together: bool) -> None:
        """Start actors that join when they have a place."""
        first = self._members.num_members
        name = f"{self._run_id}-environment" + ("s" if together else f"-{first}")
        places = Reservation.reserve(
            name, count=count, num_cpus=self._resources.cpus_per_env_runner
        )
        self._places.append(places)
        for index, place in enumerate(places.strategies, start=first):
            actor = self._make_environment(
                name=f"{self._run_id}-environment-{index}", scheduling_strategy=place
            ).remote(number=index, **self._environment_arguments)
            with self._lock:
                self._members.add(actor)

    def _take(self, event: _Event, done: list[tuple[list[EpisodeSpec], pa.RecordBatch]]) -> None:
        """Add an ended group to ``done``, or schedule a lost one again."""
        pending, member = event.pending, event.member
        if pending is None:
            with self._lock:
                self._members.on_ping(member, event.future)
            return
        with self._lock:
            member.num_groups -= 1
        try:
            done.append((pending.group, event.future.result(timeout=0)))
        except _LOST as error:
            self._lose(pending, member, error)
        except RayTaskError as error:
            if isinstance(error.cause, _LOST):
                self._lose(pending, member, error.cause)
            elif isinstance(error.cause, CastRayError):
                raise error.cause from None
            else:
                raise

    def _lose(self, pending: _Pending, member: Member, error: Exception) -> None:
        """Schedule a lost group again, for any actor that is there by then."""
        with self._lock:
            self._members.suspect(member)
        self._play_again(pending, error)

    def _play_again(self, pending: _Pending, error: Exception) -> None:
        first = pending.group[0]
        pending.attempt += 1
        self.num_lost_groups += 1
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if pending.attempt >= _MAX_ATTEMPTS:
            raise ActorLostError(
                f"group {first.group} of step {first.step} was lost {pending.attempt} times "
                f"({reason}): see its env runner's log"
            ) from error
        logger.warning("group %d of step %d is played again: %s", first.group, first.step, reason)
        delay = _FIRST_DELAY_S * 2 ** (pending.attempt - 1)
        self._delayed.append((time.monotonic() + delay, pending))

    def _start_due(self) -> None:
        now = time.monotonic()
        due = [pending for when, pending in self._delayed if when <= now]
        self._delayed = [(when, pending) for when, pending in self._delayed if when > now]
        with self._lock:
            self._waiting.extendleft(reversed(due))
        self._give_out()

    def _give_out(self) -> None:
        """Give waiting groups to actors that are there and free."""
        with self._lock:
            while self._waiting and (member := self._members.next_free()) is not None:
                self._start(self._waiting.popleft(), member)

    def _start(self, pending: _Pending, member: Member) -> None:
        group = [
            replace(spec, attempt=spec.attempt + pending.attempt) if pending.attempt else spec
            for spec in pending.group
        ]
        first = group[0]
        oracle = prover = None
        if self._oracles:  # a puzzle always goes to the same one, which has its table
            oracle = self._oracles[int(first.puzzle.puzzle_id, 16) % len(self._oracles)]
            prover = self._prover(first.puzzle, oracle)
        member.num_groups += 1
        played = member.actor.play_group.remote(group, pending.sampling, prover)
        if oracle is not None:
            played = oracle.score.remote(played, self._value_net)
        future: Future[pa.RecordBatch] = played.future()
        future.add_done_callback(lambda ended: self._events.put(_Event(member, ended, pending)))

    def _prover(self, puzzle: Puzzle, oracle: Any) -> object:  # Any: as above
        """Return what proves states of a puzzle lost, or Ray's reference to it; None = nothing.

        A value network proves nothing: with one, only the game's loss test does.
        """
        if not self._deadlock_ends_episode:
            return None
        if self._value_net:
            return LossTest(puzzle.game) if has_loss_test(puzzle.game) else None
        if has_deadlocks(puzzle.game):
            return oracle.solver.remote(puzzle.game, puzzle.board)
        return None
