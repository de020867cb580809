"""The rollout pool: whole groups go out, scored record batches come back, nothing waits between."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import GetTimeoutError, RayActorError

from cast_ray.chat import ChatPieces
from cast_ray.errors import RemoteTimeout
from cast_ray.generation import Generate
from cast_ray.rollout import EpisodeSpec, Sampling
from solver_actors.actors import EnvironmentActor, OracleActor
from solver_actors.solvers import get_solver_entry
from solver_actors.teacher import SoftTeacher

logger = logging.getLogger(__name__)

_GROUPS_PER_ACTOR = 1000  # concurrent calls an environment actor accepts
_MAX_RESTARTS = 2


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
                max_task_retries=_MAX_RESTARTS,  # asking twice gives the same answer
                # A call to score waits for its rollout: the solvers of groups submitted after it
                # must not wait behind it, or one group would be played after the other.
                allow_out_of_order_execution=True,
            ).remote(max_bytes=oracle_max_bytes, game=game, teacher=teacher)
            for index in range(num_oracle_actors)
        ]
        self.num_retries = 0

    def play(
        self, groups: Sequence[list[EpisodeSpec]], sampling: Sampling, *, timeout_s: float
    ) -> Iterator[pa.RecordBatch]:
        """Play groups and yield each, scored, as it finishes.

        A group whose actor died is played again, once, with ``attempt`` raised.

        Raises:
            RemoteTimeout: not every group came back within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        pending = {self._submit(group, sampling): group for group in groups}
        while pending:
            left = deadline - time.monotonic()
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=max(left, 0.0))
            if not ready:
                raise RemoteTimeout(
                    f"{len(pending)} of {len(groups)} groups were not played within "
                    f"{timeout_s:.0f} s; raise rollout.timeout_s or look at the engine's log"
                )
            group = pending.pop(ready[0])
            try:
                yield ray.get(ready[0], timeout=max(left, 1.0))
            except RayActorError:
                if group[0].attempt > 0:
                    raise
                self.num_retries += 1
                logger.warning("the actor of group %d died; playing it again", group[0].group)
                again = [replace(spec, attempt=spec.attempt + 1) for spec in group]
                pending[self._submit(again, sampling)] = again

    def counters(self, *, timeout_s: float = 30.0) -> dict[str, float]:
        """Return the sum of the oracles' counters, compilations in all actors included.

        Raises:
            RemoteTimeout: an actor did not answer.
        """
        oracles = [oracle.counters.remote() for oracle in self._oracles]
        compilations = [actor.num_compilations.remote() for actor in self._environments]
        try:
            each = ray.get(oracles, timeout=timeout_s)
            compiled = ray.get(compilations, timeout=timeout_s)
        except GetTimeoutError:
            raise RemoteTimeout(
                f"the pool's actors did not answer within {timeout_s:.0f} s"
            ) from None
        summed: dict[str, float] = {
            name: sum(counters[name] for counters in each) for name in each[0]
        }
        summed["num_compilations"] += sum(compiled)
        return summed

    def close(self) -> None:
        """End this pool's actors."""
        for actor in (*self._environments, *self._oracles):
            ray.kill(actor)

    def _submit(self, group: list[EpisodeSpec], sampling: Sampling) -> ray.ObjectRef:
        first = group[0]
        environment = self._environments[first.group % len(self._environments)]
        # The same puzzle always meets the same oracle: its table is there.
        oracle = self._oracles[int(first.puzzle.puzzle_id, 16) % len(self._oracles)]
        solver = None
        if self._deadlock_ends_episode and get_solver_entry(first.puzzle.game).has_deadlocks:
            solver = oracle.solver.remote(first.puzzle.game, first.puzzle.board)
        # The second time Ray itself asks again until the actor is back: as often as that takes,
        # because an actor that may restart no more is dead for good and ends it.
        play = environment.play_group.options(max_task_retries=-1 if first.attempt else 0)
        rollout = play.remote(group, sampling, solver)
        return oracle.score.remote(rollout)
