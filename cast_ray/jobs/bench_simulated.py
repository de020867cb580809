"""The whole rollout path with a simulated engine: does Python keep a fast engine's slots full?

4,096 concurrent episodes through the real environment actors, Serve, oracle and trajectory log.
Only the engine is a double (``serve.simulated_engine``): stated slots, 50 ms a turn, and answers
that name a random move. A group that ends makes room for the next, so the number of concurrent
episodes stays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cast_ray.chat import ChatTokenizer
from cast_ray.config_file import load_config
from cast_ray.errors import RemoteTimeout
from cast_ray.jobs.bench_processes import (
    DRIVER,
    cpu_ms_per_turn,
    cpu_seconds,
    private_mib,
    processes_by_component,
)
from cast_ray.jobs.bench_stream import GROUP_SIZE, GroupStream, puzzles_and_tokenizer
from cast_ray.jobs.ray_session import ray_session
from cast_ray.jobs.workers import start_pool
from cast_ray.puzzles import Puzzle
from cast_ray.small_policy import read_chat_pieces
from serve.engines import PolicyEngines
from serve.simulated_engine import SlotClock, deploy_simulated_engines
from solver_actors.pool import RolloutPool

GAME, TIER = "sokoban", "id"
NUM_EPISODES = 4096
SECONDS_PER_TURN = 0.05
NUM_PUZZLES = 512
_WARM_UP_S = 15.0
_LOOK_EVERY_S = 2.0
_MOST_EMPTY = 0.9
_TIMEOUT_S = 60.0
_MEMORY_SETTLED_TURNS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One run of the bench."""

    clock: SlotClock
    cpu: dict[str, float]
    memory: list[tuple[int, float, float]]
    """(turns, MiB of the environment actors, MiB of the driver)."""
    num_groups: int


def bench_simulated(
    *, turns_of_64_slots: int = 200_000, turns_of_16_slots: int = 20_000, num_actors: int = 1
) -> dict[str, float]:
    """Return turns a second with 64 slots, empty slot-seconds with 16, CPU and memory.

    ``empty_percent`` counts every slot-second without a turn: with 4,096 episodes for so few
    slots one always waits somewhere. Memory is what only that process holds; its growth is the
    slope over the turns after the first 50,000.
    """
    with tempfile.TemporaryDirectory() as folder:
        puzzles, model_dir = puzzles_and_tokenizer(
            Path(folder), game=GAME, tier=TIER, count=NUM_PUZZLES
        )
        many, few = (
            _measure(
                puzzles,
                model_dir,
                Path(folder) / f"log-{num_slots}",
                num_slots=num_slots,
                num_turns=num_turns,
                num_actors=num_actors,
            )
            for num_slots, num_turns in ((64, turns_of_64_slots), (16, turns_of_16_slots))
        )
    turns, environment, driver = np.array(many.memory).T
    settled = turns >= min(_MEMORY_SETTLED_TURNS, turns[-1] / 2)

    def growth(mib: np.ndarray) -> float:
        return float(np.polyfit(turns[settled], mib[settled], 1)[0] * 10_000)

    return {
        "slots_64_turns_per_s": many.clock.num_turns / many.clock.seconds,
        "slots_64_turns": many.clock.num_turns,
        "slots_64_empty_percent": 100 * many.clock.empty_fraction,
        "slots_64_turns_per_call": many.clock.num_turns / max(many.clock.num_calls, 1),
        "slots_64_turns_per_yield": many.clock.num_turns / max(many.clock.num_yields, 1),
        "slots_64_groups_logged": many.num_groups,
        **{f"slots_64_{name}": value for name, value in many.cpu.items()},
        "environment_mib": float(environment[-1]),
        "driver_mib": float(driver[-1]),
        "environment_growth_mib_per_10000_turns": growth(environment),
        "driver_growth_mib_per_10000_turns": growth(driver),
        "slots_16_turns_per_s": few.clock.num_turns / few.clock.seconds,
        "slots_16_empty_percent": 100 * few.clock.empty_fraction,
        "slots_16_starved_percent": 100
        * few.clock.starved_slot_seconds
        / (few.clock.num_slots * few.clock.seconds),
    }


@contextmanager
def _engine_and_pool(
    model_dir: Path, *, num_slots: int, num_actors: int
) -> Iterator[tuple[PolicyEngines, RolloutPool]]:
    config = load_config(
        None,
        [
            f"game={GAME}",
            f"resources.environment_actors={num_actors}",
            "resources.groups_per_environment_actor=1000",
            f"engine.max_num_seqs={num_slots}",
            f"engine.request_timeout_s={_TIMEOUT_S}",
            f"engine.start_timeout_s={_TIMEOUT_S}",
        ],
    )
    tokenizer = ChatTokenizer(model_dir, read_chat_pieces(model_dir))
    moves = ("Up", "Down", "Left", "Right")
    run_id = f"simulated-{num_slots}"
    with ray_session(num_cpus=4):
        engines = deploy_simulated_engines(
            run_id,
            num_engines=1,
            num_slots=num_slots,
            seconds_per_turn=SECONDS_PER_TURN,
            answers=[tokenizer.answer(f"```{move}```") for move in moves],
        )
        pool = start_pool(
            config,
            run_id=run_id,
            model_dir=model_dir,
            engine_names=engines.names,
        )
        try:
            yield engines, pool
        finally:
            pool.close()
            engines.remove()


def _measure(
    puzzles: list[Puzzle],
    model_dir: Path,
    folder: Path,
    *,
    num_slots: int,
    num_turns: int,
    num_actors: int,
) -> _Measured:
    with _engine_and_pool(model_dir, num_slots=num_slots, num_actors=num_actors) as parts:
        engines, pool = parts
        [handle] = engines.handles
        num_groups = NUM_EPISODES // GROUP_SIZE
        stream = GroupStream(pool, puzzles, folder, num_groups=num_groups)

        stream.keep_up(_WARM_UP_S)
        handle.reset_clock.remote().result(timeout_s=_TIMEOUT_S)
        cpu, groups = cpu_seconds(), stream.num_finished
        watched = processes_by_component()
        memory: list[tuple[int, float, float]] = []
        while True:
            stream.keep_up(_LOOK_EVERY_S)
            clock: SlotClock = handle.clock.remote().result(timeout_s=_TIMEOUT_S)
            environment, driver = (private_mib(watched[name]) for name in ("environment", DRIVER))
            memory.append((clock.num_turns, environment, driver))
            if clock.num_turns >= num_turns:
                break
            if clock.empty_fraction > _MOST_EMPTY:
                raise RemoteTimeout(
                    f"the simulated engine's slots are {clock.empty_fraction:.0%} empty after "
                    f"{clock.num_turns} turns: look at the environment actors' logs"
                )
        used = cpu_ms_per_turn(cpu, cpu_seconds(), clock.num_turns)
        num_groups = stream.num_finished - groups
        stream.close()
    return _Measured(clock=clock, cpu=used, memory=memory, num_groups=num_groups)
