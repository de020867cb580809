"""Turns per second of the complete rollout path and of vLLM's AsyncLLM alone.

A round of the path plays groups of the quickstart's game through env runners, Serve, engine, oracle
and trajectory log, 128 episodes at a time, with answers of a fixed length. Then an AsyncLLM in
another process, with the same engine arguments, replays the same conversations with as many prompt
and answer tokens per turn. The two alternate; one is idle while the other is measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from benchmarks.bare_engine import Conversation
from benchmarks.simulated import cpu_ms_per_turn, cpu_seconds
from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import TrainConfig
from cast_ray.errors import RemoteTimeout
from cast_ray.games import get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.rollout.episode import Sampling
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.rollout.specs import episode_groups, training_sampling
from cast_ray.training.collector import RolloutCollector, Ticket
from cast_ray.training.warm_start import build_initial_model
from cast_ray.training.workers import start_pool
from serve.client.client import PolicyClient, connect_policy
from serve.engine.deployment import ENGINE_ENVIRONMENT, deploy_engines
from serve.messages import EngineOptions
from solver_actors.actors.pool import RolloutPool
from solver_actors.registry import StartSolver


class FixedLength:
    """A ``Generate`` whose answers have exactly ``max_tokens``, the last of them ends the turn."""

    def __init__(self, client: PolicyClient) -> None:
        self._client = client

    async def __call__(self, request: GenerateRequest, lane: Lane) -> Completion:
        """Request an answer that nothing ends early, and end it."""
        unstopped = replace(request, stop_token_ids=())
        answer = await self._client(unstopped, lane)
        return replace(
            answer,
            token_ids=(*answer.token_ids[:-1], request.stop_token_ids[0]),
            finish_reason="stop",
        )

    def counters(self) -> Mapping[str, float]:
        """Forward to the client."""
        return self._client.counters()


def connect_fixed_length(*arguments: Any, **settings: Any) -> FixedLength:
    """Return ``FixedLength`` around ``connect_policy``, whose arguments these are."""
    return FixedLength(connect_policy(*arguments, **settings))


NUM_CONCURRENT = 128
NUM_EPISODES = 256
"""Of one round."""
NUM_ROUNDS = 5
ANSWER_LENGTHS = (256, 32, 8)
LONG_ANSWER = 64
"""Of more tokens than this a quarter of the episodes is enough."""
_GROUP_SIZE = 8
_SEED = 0
_START_TIMEOUT_S = 300.0
_ROUND_TIMEOUT_S = 300.0
_POLL_S = 0.005


@ray.remote(num_cpus=1)
class BareActor:
    """A Ray actor with a ``BareEngine``."""

    async def __init__(self, options: EngineOptions) -> None:
        # Imported here because only this process needs vLLM.
        from benchmarks.bare_engine import BareEngine

        self._engine = BareEngine(options)

    async def replay(self, talks: list[Conversation], num_concurrent: int) -> float:
        """Forward to ``BareEngine.replay``."""
        return await self._engine.replay(talks, num_concurrent=num_concurrent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two sides of the comparison."""

    pool: RolloutPool
    collector: RolloutCollector
    bare: Any  # Any: Ray's handles have the actor's methods, and .remote
    folder: Path
    puzzles: list[Puzzle]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of one side."""

    seconds: float
    num_turns: int
    cpu: dict[str, float]
    """CPU milliseconds per turn by component."""

    @property
    def turns_per_s(self) -> float:
        return self.num_turns / self.seconds


def bench_rollout(*, num_rounds: int = NUM_ROUNDS) -> dict[str, float]:
    """Return turns per second of both sides for each answer length, medians over rounds.

    ``…_ratio`` is the median over rounds of the path's speed over the bare engine's right after.
    """
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, rollout_sides(Path(folder)) as sides:
        for num_tokens in ANSWER_LENGTHS:
            # The first round of each warms up.
            rounds = [_round(sides, num_tokens, number) for number in range(num_rounds + 1)][1:]
            ratios = [path.turns_per_s / bare.turns_per_s for path, bare in rounds]
            figures |= {
                f"tokens_{num_tokens}_path_turns_per_s": _median(p.turns_per_s for p, _ in rounds),
                f"tokens_{num_tokens}_bare_turns_per_s": _median(b.turns_per_s for _, b in rounds),
                f"tokens_{num_tokens}_ratio": _median(ratios),
                f"tokens_{num_tokens}_worst_ratio": min(ratios),
                f"tokens_{num_tokens}_turns_of_a_round": rounds[0][0].num_turns,
            }
            for side, number in (("path", 0), ("bare", 1)):
                for name in rounds[0][number].cpu:
                    value = _median(pair[number].cpu[name] for pair in rounds)
                    if value > 0.0005:
                        figures[f"tokens_{num_tokens}_{side}_{name}"] = value
    return figures


def _median(values: Any) -> float:  # Any: an iterable of floats
    return float(np.median(list(values)))


@contextmanager
def rollout_sides(folder: Path) -> Iterator[Sides]:
    config = load_config(
        None,
        [
            f"engine.request_timeout_s={_ROUND_TIMEOUT_S}",
            f"engine.start_timeout_s={_START_TIMEOUT_S}",
            "rollout.prompt_tokens=4096",  # a game of the longest answers
        ],
    )
    model_dir = folder / "model"
    puzzles = build_puzzles(
        game=config.game,
        tier=config.tier,
        count=NUM_EPISODES // _GROUP_SIZE,
        seed=_SEED,
        solve=StartSolver(config.game).cost,
    )
    build_initial_model(
        model_dir,
        game=config.game,
        turn_budget=get_game(config.game).tiers[config.tier].turn_budget,
        puzzles=puzzles,
        policy=config.policy,
        max_tokens=config.rollout.prompt_tokens,
        seed=_SEED,
    )
    options = engine_options(config, model_dir)
    environment = {**ENGINE_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    with ray_session(num_cpus=4):
        bare: Any = BareActor.options(runtime_env={"env_vars": environment}).remote(options)
        engines = deploy_engines(
            "bench", options, ResourcesConfig(), weights_directory=str(folder / "no-weights")
        )
        pool = start_pool(
            config,
            run_id="bench",
            model_dir=model_dir,
            pieces=read_chat_pieces(model_dir),
            engine_names=engines.names,
            connect=connect_fixed_length,
        )
        collector = RolloutCollector(pool)
        try:
            yield Sides(pool=pool, collector=collector, bare=bare, folder=folder, puzzles=puzzles)
        finally:
            collector.close()
            pool.close()
            engines.remove()
            ray.kill(bare)


def engine_options(config: TrainConfig, model_dir: Path) -> EngineOptions:
    """Return the options of both sides' engines."""
    return EngineOptions(
        engine=config.engine,
        model_dir=str(model_dir),
        max_model_len=config.rollout.prompt_tokens,
        seed=_SEED,
        stall_timeout_s=60.0,
        probe_timeout_s=30.0,
    )


def _round(sides: Sides, num_tokens: int, number: int) -> tuple[Round, Round]:
    """Measure the path, then the bare engine on the same conversations."""
    cpu, started = cpu_seconds(), time.perf_counter()
    table = _play(sides, num_tokens, number)
    seconds = time.perf_counter() - started
    num_turns = sum(map(len, table["effects"].to_pylist()))
    path = Round(
        seconds=seconds,
        num_turns=num_turns,
        cpu=cpu_ms_per_turn(cpu, cpu_seconds(), num_turns),
    )
    sampling = training_sampling(TrainConfig())
    return path, bare_round(
        sides, table, replace(sampling, max_answer_tokens=num_tokens), num_concurrent=NUM_CONCURRENT
    )


def bare_round(sides: Sides, table: pa.Table, sampling: Sampling, *, num_concurrent: int) -> Round:
    """Measure the bare engine on the path's conversations, ``num_concurrent`` at a time."""
    talks = [_conversation(row, sampling) for row in table.to_pylist()]
    cpu = cpu_seconds()
    replay = sides.bare.replay.remote(talks, num_concurrent=num_concurrent)
    seconds = float(ray.get(replay, timeout=_ROUND_TIMEOUT_S))
    num_turns = sum(len(talk.seeds) for talk in talks)
    return Round(
        seconds=seconds,
        num_turns=num_turns,
        cpu=cpu_ms_per_turn(cpu, cpu_seconds(), num_turns),
    )


def _play(sides: Sides, num_tokens: int, number: int) -> pa.Table:
    """Play a round's episodes, with a new group for each that ends, and return them."""
    sampling = replace(
        training_sampling(TrainConfig()), max_answer_tokens=num_tokens, truncated="execute"
    )
    groups = episode_groups(
        sides.puzzles, attempts=_GROUP_SIZE, step=number, seed=_SEED, purpose=f"{num_tokens}"
    )
    if num_tokens > LONG_ANSWER:
        groups = groups[: len(groups) // 4]
    deadline = time.monotonic() + _ROUND_TIMEOUT_S
    tickets = []
    while time.monotonic() < deadline:
        num_out = sum(not ticket.is_finished for ticket in tickets)
        for group in groups[len(tickets) :][: NUM_CONCURRENT // _GROUP_SIZE - num_out]:
            path = sides.folder / f"{num_tokens}-{number}-{group[0].group}.parquet"
            tickets.append(sides.collector.issue([group], sampling, log_to=lambda _, p=path: p))
        if len(tickets) == len(groups) and all(ticket.is_finished for ticket in tickets):
            return pa.concat_tables(map(_played, tickets))
        time.sleep(_POLL_S)
    raise RemoteTimeout(f"a round was not played within {_ROUND_TIMEOUT_S:.0f} s")


def _played(ticket: Ticket) -> pa.Table:
    return pa.Table.from_batches(ticket.batches)


def _conversation(row: dict[str, Any], sampling: Sampling) -> Conversation:  # Any: a row of Arrow
    starts, ends, tokens = row["turn_starts"], row["turn_ends"], row["token_ids"]
    return Conversation(
        first=GenerateRequest(
            token_ids=tuple(tokens[: starts[0]]),
            max_tokens=sampling.max_answer_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=row["turn_seeds"][0],
            stop_token_ids=(),
        ),
        seeds=tuple(row["turn_seeds"]),
        observations=tuple(
            tuple(tokens[end:start]) for end, start in zip(ends, starts[1:], strict=False)
        ),
    )
