"""The complete rollout path with a simulated engine: can Python keep a fast engine's slots busy?

4,096 concurrent episodes run through the real env runners, Serve, oracle and trajectory log. Only
the engine is a double (``tests.support.simulated_engine``) with a number of slots, 50 ms per turn
and random moves as answers. A new group starts when one ends, so that the number of concurrent
episodes is constant. Processor time and private memory are measured per component.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import RemoteTimeout
from cast_ray.games import get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.rollout.specs import episode_groups, training_sampling
from cast_ray.training.collector import RolloutCollector, Ticket
from cast_ray.training.warm_start import build_initial_model
from cast_ray.training.workers import start_pool
from serve.client.engines import PolicyEngines
from solver_actors.actors.pool import RolloutPool
from solver_actors.registry import StartSolver
from tests.support.simulated_engine import SlotClock, deploy_simulated_engines

_COMPONENTS = {
    "ray::EnvRunner": "environment",
    "ray::OracleActor": "oracle",
    "ray::AnalystActor": "analyst",
    "ray::ServeReplica:cast-ray-site": "site",
    "ray::ServeReplica": "engine",
    "ray::ProxyActor": "proxy",
    "VLLM::EngineCor": "engine_core",
    "ray::ServeController": "serve_controller",
    "ray::DashboardAgent": "ray_agents",
    "ray::RuntimeEnvAgent": "ray_agents",
    "raylet": "raylets",
    "gcs_server": "gcs",
}
OTHER = "other"
DRIVER = "driver"


def processes_by_component() -> dict[str, list[psutil.Process]]:
    """Return this process (``driver``) and all below it by component: actors, engines, Ray."""
    found: dict[str, list[psutil.Process]] = {DRIVER: [psutil.Process()]}
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline()[:1]) or process.name()
            names = f"{title} {process.name()}"
        except psutil.Error:
            continue
        component = next((c for key, c in _COMPONENTS.items() if key in names), OTHER)
        found.setdefault(component, []).append(process)
    return found


def cpu_seconds() -> dict[str, float]:
    """Return the user and system time of each component so far."""
    seconds: dict[str, float] = {}
    for component, processes in processes_by_component().items():
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            seconds[component] = seconds.get(component, 0.0) + times.user + times.system
    return seconds


def cpu_ms_per_turn(
    before: Mapping[str, float], after: Mapping[str, float], num_turns: int
) -> dict[str, float]:
    """Return ``<component>_cpu_ms_per_turn`` between two readings of ``cpu_seconds``, and all."""
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    per_turn = {
        f"{name}_cpu_ms_per_turn": 1000 * seconds / num_turns for name, seconds in used.items()
    }
    return {**per_turn, "all_cpu_ms_per_turn": 1000 * sum(used.values()) / num_turns}


def private_mib(processes: list[psutil.Process]) -> float:
    """Return the memory that these processes do not share with others."""
    return sum(process.memory_full_info().uss for process in processes) / 2**20


GROUP_SIZE = 8
_SEED = 0
_POLL_S = 0.01
MAX_TOKENS = 4096


class GroupStream:
    """Keeps a number of groups in flight and counts the finished ones."""

    def __init__(
        self, pool: RolloutPool, puzzles: list[Puzzle], folder: Path, *, num_groups: int
    ) -> None:
        """Create the folder; nothing is issued yet.

        Args:
            pool: plays the groups.
            puzzles: taken in order, repeatedly.
            folder: new folder for the finished groups.
            num_groups: number of groups in flight.
        """
        self._collector = RolloutCollector(pool)
        self._puzzles = puzzles
        self._folder = folder
        self._num_groups = num_groups
        self._sampling = training_sampling(TrainConfig())
        self._out: list[Ticket] = []
        self._num_issued = 0
        self.num_finished = 0
        self.num_turns = 0
        """Turns of the finished groups."""
        self.num_bytes = 0
        """Size of their record batches."""
        folder.mkdir()

    def keep_up(self, seconds: float) -> None:
        """Issue a new group for each that ends, for a number of seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._top_up()
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Stop issuing and collecting."""
        self._collector.close()

    def _top_up(self) -> None:
        """Drop the finished groups, which are on disk, and issue as many new ones."""
        for ticket in self._out:
            if ticket.is_finished:
                self._count(ticket)
        self._out = [ticket for ticket in self._out if not ticket.is_finished]
        while len(self._out) < self._num_groups:
            puzzle = self._puzzles[self._num_issued % len(self._puzzles)]
            groups = episode_groups(
                [puzzle],
                attempts=GROUP_SIZE,
                step=0,
                seed=_SEED,
                purpose="bench",
                first_group=self._num_issued,
            )
            path = self._folder / f"group-{self._num_issued:06}.parquet"
            self._num_issued += 1
            self._out.append(
                self._collector.issue(groups, self._sampling, log_to=lambda _, p=path: p)
            )

    def _count(self, ticket: Ticket) -> None:
        self.num_finished += 1
        for batch in ticket.batches:
            self.num_turns += len(batch["turn_starts"].flatten())
            self.num_bytes += batch.nbytes


def puzzles_and_tokenizer(
    folder: Path, *, game: str, tier: str, count: int
) -> tuple[list[Puzzle], Path]:
    """Return puzzles of a tier, and a model directory in ``folder`` with a tokenizer."""
    puzzles = build_puzzles(
        game=game, tier=tier, count=count, seed=_SEED, solve=StartSolver(game).cost
    )
    build_initial_model(
        folder / "model",
        game=game,
        turn_budget=get_game(game).tiers[tier].turn_budget,
        puzzles=puzzles,
        policy=TrainConfig().policy,
        max_tokens=MAX_TOKENS,
        seed=_SEED,
    )
    return puzzles, folder / "model"


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
    """One run of the benchmark."""

    clock: SlotClock
    cpu: dict[str, float]
    memory: list[tuple[int, float, float]]
    """(turns, MiB of the env runners, MiB of the driver)."""
    num_groups: int


def bench_simulated(
    *, turns_of_64_slots: int = 200_000, turns_of_16_slots: int = 20_000, num_actors: int = 1
) -> dict[str, float]:
    """Return turns per second with 64 slots, empty slot-seconds with 16, CPU and memory.

    ``empty_percent`` counts every slot-second without a turn; with 4,096 episodes, some turn is
    always waiting for a slot. Memory is private; its growth is the slope over the turns after the
    first 50,000.
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
            f"resources.env_runners={num_actors}",
            "resources.groups_per_env_runner=1000",
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
            pieces=read_chat_pieces(model_dir),
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
                    f"{clock.num_turns} turns: look at the env runners' logs"
                )
        used = cpu_ms_per_turn(cpu, cpu_seconds(), clock.num_turns)
        num_groups = stream.num_finished - groups
        stream.close()
    return _Measured(clock=clock, cpu=used, memory=memory, num_groups=num_groups)
