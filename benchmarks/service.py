"""Overhead of the service with 64 games at once over HTTP and server-sent events.

First with a simulated engine of fixed latency: the rest of a turn is the service's overhead. Then
with a real engine, for processor time. The client is this process, which is counted separately.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
from ray import serve as ray_serve

from benchmarks.simulated import MAX_TOKENS, cpu_ms_per_turn, cpu_seconds, puzzles_and_tokenizer
from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.config.train import EngineConfig, RolloutConfig, TrainConfig
from cast_ray.errors import EngineError
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.training.warm_start import demonstrations, warm_start
from cast_ray.training.workers import start_learner
from serve.service.app_handles import MODEL_APP, QUICK_PROXY, SITE_APP
from serve.service.plan import ServicePlan
from serve.site.guard import GuardSettings
from tests.support.simulated_engine import SimulatedDeployment

NUM_EPISODES = 64
SECONDS_PER_TURN = 1.0
"""Latency of the simulated engine, which has a slot for every game."""
SECONDS = 60.0
GAME, TIER = "sokoban", "id"
_PORT = 18765
_NUM_PUZZLES = 256
_WARM_UP_S = 10.0
_LESSONS = 60
"""Updates of the warm start: enough to end answers, not enough to play well."""
_OWN = ("site", "proxy", "analyst")
_CONFIG = TrainConfig(
    rollout=RolloutConfig(
        max_answer_tokens=8, prompt_tokens=1024, response_tokens=MAX_TOKENS - 1024
    ),
    engine=EngineConfig(
        dtype="float32", max_num_seqs=NUM_EPISODES, request_timeout_s=60.0, start_timeout_s=60.0
    ),
)
_UNLIMITED = GuardSettings(requests_per_minute=10**7, burst=10**6)


@dataclass(slots=True)
class Load:
    """What the clients measured in the window."""

    turn_seconds: list[float] = field(default_factory=list)
    """From one turn's event to the next one of the same game."""
    own_seconds: list[float] = field(default_factory=list)
    """The same without the wait for the policy: rules, turn values, the event's transfer."""
    num_turns: int = 0
    num_games: int = 0
    errors: list[str] = field(default_factory=list)


def bench_service(*, seconds: float = SECONDS, with_real_engine: bool = True) -> dict[str, float]:
    """Return overhead per turn, errors, turns per second and processor time per turn.

    ``simulated_overhead_*`` is the time from one turn's event to the next at the client, minus the
    simulated engine's latency; ``*_own_ms_*`` the same time without the wait for the policy and
    for Serve. ``*_own_cpu_ms_per_turn`` is the sum of site, HTTP proxy and analyst; engine, client
    and Ray's processes are listed separately.
    """
    with tempfile.TemporaryDirectory() as folder:
        puzzles, model_dir = puzzles_and_tokenizer(
            Path(folder), game=GAME, tier=TIER, count=_NUM_PUZZLES
        )
        figures = _measured("simulated", puzzles, model_dir, _simulated_engine, seconds=seconds)
        if with_real_engine:
            taught = _taught(model_dir, puzzles, Path(folder) / "taught")
            figures |= _measured("real", puzzles, taught, _real_engine, seconds=seconds)
    return figures


def _measured(
    name: str,
    puzzles: list[Puzzle],
    model_dir: Path,
    deploy: Callable[[ServicePlan], None],
    *,
    seconds: float,
) -> dict[str, float]:
    with _service(model_dir, deploy):
        load, cpu = asyncio.run(_loaded(puzzles, seconds))
    own = sum(cpu.get(f"{part}_cpu_ms_per_turn", 0.0) for part in _OWN)
    figures = {
        f"{name}_turns_per_s": load.num_turns / seconds,
        f"{name}_games": load.num_games,
        f"{name}_errors": len(load.errors),
        f"{name}_own_cpu_ms_per_turn": own,
        **{f"{name}_{key}": value for key, value in cpu.items()},
    }
    for percent in (50, 95, 99):
        taken = 1000 * float(np.percentile(load.turn_seconds, percent))
        figures[f"{name}_turn_ms_p{percent}"] = taken
        figures[f"{name}_own_ms_p{percent}"] = 1000 * float(
            np.percentile(load.own_seconds, percent)
        )
        if name == "simulated":
            figures[f"simulated_overhead_ms_p{percent}"] = taken - 1000 * SECONDS_PER_TURN
    for error in load.errors[:3]:
        print(error)
    return figures


def _taught(model_dir: Path, puzzles: list[Puzzle], place: Path) -> Path:
    """Train a model that ends its answers, as games would otherwise end after one turn."""
    config = load_config(
        None,
        [
            f"game={GAME}",
            f"tier={TIER}",
            f"warm_start.steps={_LESSONS}",
            "warm_start.careless_steps=0",
            "resources.learner_ranks=1",
        ],
    )
    table = demonstrations(
        puzzles,
        config.warm_start,
        tokenizer=ChatTokenizer(model_dir, read_chat_pieces(model_dir)),
        turn_budget=get_game(GAME).tiers[TIER].turn_budget,
        ends_dead=True,
        seed=config.seed,
    )
    with ray_session(num_cpus=2):
        learner = start_learner(config, model_dir=model_dir)
        try:
            warm_start(
                learner,
                table,
                config,
                checkpoint=place.with_name("warm_start"),
                on_step=lambda step, loss: None,
            )
            learner.save_model(place)
        finally:
            learner.close()
    return place


@contextmanager
def _service(model_dir: Path, deploy: Callable[[ServicePlan], None]) -> Iterator[None]:
    plan = ServicePlan.of(model_dir, _CONFIG, guard=_UNLIMITED, name="bench")
    os.environ.update(QUICK_PROXY)
    with ray_session(num_cpus=4):
        ray_serve.start(http_options={"host": "127.0.0.1", "port": _PORT})
        deploy(plan)
        ray_serve.run(plan.site_application(), name=SITE_APP, route_prefix="/")
        try:
            yield
        finally:
            ray_serve.delete(SITE_APP)
            ray_serve.delete(MODEL_APP)


def _simulated_engine(plan: ServicePlan) -> None:
    tokenizer = ChatTokenizer(plan.model_dir, plan.pieces)
    moves = ("Up", "Down", "Left", "Right")
    engine = SimulatedDeployment.options(ray_actor_options={"num_cpus": 0}).bind(
        num_slots=NUM_EPISODES,
        seconds_per_turn=SECONDS_PER_TURN,
        answers=tuple(tuple(tokenizer.answer(f"```{move}```")) for move in moves),
        refused_seeds=(),
        seconds_to_start=0.0,
    )
    ray_serve.run(engine, name=MODEL_APP, route_prefix=None)


def _real_engine(plan: ServicePlan) -> None:
    ray_serve.run(plan.model_application(), name=MODEL_APP, route_prefix=None)


async def _loaded(puzzles: list[Puzzle], seconds: float) -> tuple[Load, dict[str, float]]:
    """Play all games; return the measurements after the warm-up, and processor time."""
    load = Load()
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{_PORT}",
        timeout=timeout,
        connector=aiohttp.TCPConnector(limit=0),
    ) as session:
        players = [
            asyncio.create_task(_play_on(session, puzzles, number, load))
            for number in range(NUM_EPISODES)
        ]
        await asyncio.sleep(_WARM_UP_S)
        load.turn_seconds.clear()
        load.own_seconds.clear()
        load.num_turns = load.num_games = 0
        before = cpu_seconds()
        await asyncio.sleep(seconds)
        after, num_turns = cpu_seconds(), load.num_turns
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)
    if not num_turns:
        raise EngineError(f"no turn was played in {seconds:g} s: {load.errors[:1]}")
    return load, cpu_ms_per_turn(before, after, num_turns)


async def _play_on(
    session: aiohttp.ClientSession, puzzles: list[Puzzle], number: int, load: Load
) -> None:
    """Play one game after the other, as one of 64 users."""
    budget = get_game(GAME).tiers[TIER].turn_budget
    # Users do not start at the same moment.
    await asyncio.sleep(SECONDS_PER_TURN * number / NUM_EPISODES)
    seed = number
    while True:
        seed += NUM_EPISODES
        body = {
            "game": GAME,
            "board": puzzles[seed % len(puzzles)].board,
            "player": "agent",
            "temperature": 1.0,
            "sampling_seed": seed,
            "turn_budget": budget,
        }
        try:
            async with session.post("/api/episodes", json=body) as answer:
                episode = await answer.json()
                if answer.status != 201:
                    raise EngineError(f"{answer.status}: {episode}")
            last = time.monotonic()
            async with session.get(f"/api/episodes/{episode['id']}/events") as stream:
                async for name, data in _events(stream):
                    now = time.monotonic()
                    if name == "turn":
                        load.num_turns += 1
                        load.turn_seconds.append(now - last)
                        load.own_seconds.append(now - last - json.loads(data)["seconds"])
                    elif json.loads(data)["end_reason"] == "failed":
                        raise EngineError(data)
                    last = now
            load.num_games += 1
        except (aiohttp.ClientError, EngineError, TimeoutError) as error:
            load.errors.append(f"{type(error).__name__}: {error}"[:300])
            await asyncio.sleep(1)


async def _events(stream: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str]]:
    """Yield (event, data)."""
    name = ""
    async for raw in stream.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, line.removeprefix("data: ")
