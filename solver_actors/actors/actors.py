"""The Ray actors of a rollout pool: an oracle, and a runner of many concurrent episodes."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import psutil
import pyarrow as pa
import ray

from cast_ray.functions import keep_sources
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import ChatPieces
from cast_ray.rollout.episode import EpisodeSpec, PlayedTurn, Sampling, play_episode
from cast_ray.rollout.generate import CountsRequests, Generate
from cast_ray.rollout.trajectory import Trajectory, to_rollout_batch, with_costs
from cast_ray.runs.remote_directories import localized
from solver_actors.kernels import CompilationCounter, compile_kernels
from solver_actors.oracle import Oracle
from solver_actors.solver import ProvesLoss, Solver
from solver_actors.teacher import SoftTeacher
from solver_actors.value_net.scale import ValueNetOracle


def process_figures() -> dict[str, float]:
    """Return which process this is and the memory it holds, in bytes."""
    return {"pid": os.getpid(), "resident_bytes": psutil.Process().memory_info().rss}


ASKED = ("exact", "expected", "value_net")
"""Values of ``oracle`` for which oracle actors score what was played."""
_NETWORK_TIMEOUT_S = 120.0
_NICENESS = 5
"""An engine on the same cores goes first: episodes can wait for it, and it must not wait for them.
On two cores, with eight tokens per answer: 0.92 instead of 0.89 of bare vLLM's speed."""


@ray.remote
class OracleActor:
    """One oracle; the pool sends a puzzle always to the same one."""

    def __init__(
        self,
        *,
        max_bytes: int,
        game: str,
        teacher: SoftTeacher | None,
        is_exact: bool = True,
        expected: str = "",
    ) -> None:
        """Set up an oracle.

        Args:
            max_bytes: bound of its solvers.
            game: whose kernels are compiled before it is ready.
            teacher: rates every turn; None = no teacher.
            is_exact: False = a value network is sent with every call.
            expected: as for ``Oracle``.
        """
        os.nice(_NICENESS)
        if is_exact:
            compile_kernels([game])
        self._compilations = CompilationCounter()
        self._oracle = Oracle(max_bytes=max_bytes, teacher=teacher, expected=expected)
        self._has_network = is_exact
        self._max_bytes, self._teacher = max_bytes, teacher

    def solver(self, game: str, board: str) -> Solver:
        """Return the layout's solver; its arrays are shared through the object store."""
        return self._oracle.solver(game, board)

    def score(
        self, rollout: pa.RecordBatch, value_net: Sequence[ray.ObjectRef[ValueNetOracle]] = ()
    ) -> pa.RecordBatch:
        """Return a group widened by its costs and by what the teacher says.

        Args:
            rollout: ``ROLLOUT_SCHEMA``.
            value_net: none or one; fetched once. It is sent with each call, because an actor's
                constructor arguments may be gone when Ray restarts it.
        """
        if not self._has_network:
            # Here and not above: torch takes a process two seconds and 300 MB.
            from solver_actors.value_net.solver import value_net_entry

            (network,) = ray.get(list(value_net), timeout=_NETWORK_TIMEOUT_S)
            self._oracle = Oracle(
                max_bytes=self._max_bytes,
                teacher=self._teacher,
                estimator=value_net_entry(network),
            )
            self._has_network = True
        return self._oracle.score(rollout)

    def counters(self) -> dict[str, float]:
        """Return what this process has done so far, and the compilations since it was ready."""
        return {
            **asdict(self._oracle.counters),
            "num_compilations": self._compilations.num_compilations,
            **process_figures(),
        }


@ray.remote
class EnvRunner:
    """Hosts episodes, hundreds at a time, in one event loop."""

    def __init__(
        self,
        *,
        number: int,
        model_dir: str,
        pieces: ChatPieces,
        make_generate: Callable[[int], Generate],
        oracle: str = "exact",
        sources: Mapping[str, bytes] = {},
    ) -> None:
        """Set up a runner; ``oracle`` and ``sources`` are those of ``RolloutPool``."""
        os.nice(_NICENESS)
        keep_sources(sources)
        self._oracle = oracle
        self._tokenizer = ChatTokenizer(localized(model_dir, with_weights=False), pieces)
        self._make_generate = functools.partial(make_generate, number)
        self._generate: Generate | None = None
        self._compilations = CompilationCounter()

    async def counters(self) -> dict[str, float]:
        """Return what this process has done: compilations, and requests if they are counted."""
        generate = self._generate
        return {
            "num_compilations": self._compilations.num_compilations,
            **(generate.counters() if isinstance(generate, CountsRequests) else {}),
            **process_figures(),
        }

    async def play_group(
        self,
        specs: list[EpisodeSpec],
        sampling: Sampling,
        solver: ProvesLoss | None,
    ) -> pa.RecordBatch:
        """Play the episodes of one group concurrently; return them as one record batch.

        It has its costs already if no oracle is asked: the rewards of the turns as estimates, or
        none.

        Args:
            specs: the episodes.
            sampling: how answers are drawn.
            solver: proves deadlocks, which end an episode; None = play on.
        """
        if self._generate is None:
            self._generate = self._make_generate()  # needs the running event loop
        played = await asyncio.gather(
            *(self._play(self._generate, spec, sampling, solver) for spec in specs)
        )
        batch = to_rollout_batch(trajectory for trajectory, _ in played)
        if self._oracle in ASKED:
            return batch
        if self._oracle == "none":
            return with_costs(batch, None)
        rewards = np.array([reward for _, earned in played for reward in earned])
        return with_costs(batch, None, estimates=-rewards)

    async def _play(
        self, generate: Generate, spec: EpisodeSpec, sampling: Sampling, solver: ProvesLoss | None
    ) -> tuple[Trajectory, list[float]]:
        """Return an episode, and ``[T + 1]`` what it had earned before and after each turn."""
        earned = [0.0]

        async def watch(turn: PlayedTurn) -> str:
            earned.append(turn.reward)
            return ""

        trajectory = await play_episode(
            spec,
            tokenizer=self._tokenizer,
            generate=generate,
            sampling=sampling,
            is_dead=None if solver is None else solver.is_dead,
            watch=watch,
        )
        return trajectory, earned
