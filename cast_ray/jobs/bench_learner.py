"""Tokens a second of whole updates: the learner beside bare PyTorch loops, in one run.

One rank and one thread each, on a step's trajectories of the quickstart: solver play with mistakes
on Sokoban's ID boards, whose lengths differ as real episodes' do. All take the same updates in
turn, so that what else the machine does meets all of them. Where TRL is installed (the extra
``bench``), steps of its GRPO trainer on the same trajectories follow, on one thread as well.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch

from cast_ray.batching import row_offsets
from cast_ray.chat import ChatTokenizer
from cast_ray.config import TrainConfig
from cast_ray.games import get_game
from cast_ray.generators import build_puzzles
from cast_ray.jobs.bench_loops import BareLoop
from cast_ray.jobs.bench_trl import TrlSteps
from cast_ray.jobs.ray_session import ray_session
from cast_ray.jobs.start_solver import StartSolver
from cast_ray.jobs.updates import objective_of
from cast_ray.jobs.warm_start import build_initial_model, demonstrations
from cast_ray.jobs.workers import learner_settings
from cast_ray.learner_group import LearnerGroup
from cast_ray.learner_settings import LearnerSettings
from cast_ray.objectives import Objective
from cast_ray.policy import load_policy
from cast_ray.small_policy import read_chat_pieces

GAME, TIER = "sokoban", "id"
NUM_ROWS = 48
"""Trajectories of one update."""
NUM_ROUNDS = 5
MISTAKE_PROBABILITY = 0.5
_MAX_TOKENS = 8192
_TIMEOUT_S = 600.0
_SEED = 0


def bench_learner() -> dict[str, float]:
    """Return tokens a second of an update, medians over rounds, and memory.

    ``…_tokens_per_s`` counts every token of the trajectories, prompts included. The ratio to the
    padded loop has to be held against ``longest_over_mean``: that much of it computes padding.
    Memory is the growth of the process's resident size from before its first update to its peak;
    ``state_mib`` is the sum of weights, their float32 copies, gradients and moments. TRL's step has
    its own optimizer, rewards and padding in it; without TRL ``learner_over_trl`` is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings, table = _settings_and_table(Path(folder))
        with ray_session(num_cpus=3):
            seconds, memory = _measure(settings, table)
        state_mib = _state_mib(Path(settings.model_dir))
    lengths = np.diff(row_offsets(table))
    speed = {name: lengths.sum() / float(np.median(times)) for name, times in seconds.items()}
    return {
        **{f"{name}_tokens_per_s": value for name, value in speed.items()},
        "learner_over_packed": speed["learner"] / speed["packed"],
        "learner_over_padded": speed["learner"] / speed["padded"],
        **({"learner_over_trl": speed["learner"] / speed["trl"]} if "trl" in speed else {}),
        "longest_over_mean": float(lengths.max() / lengths.mean()),
        "goal_over_padded": float(0.85 * lengths.max() / lengths.mean()),
        "tokens": float(lengths.sum()),
        **{f"{name}_peak_mib": value for name, value in memory.items()},
        "state_mib": state_mib,
    }


def _measure(
    settings: LearnerSettings, table: pa.Table
) -> tuple[dict[str, list[float]], dict[str, float]]:
    objective = replace(objective_of(TrainConfig()), rollout_correction="none")
    env_vars = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "DS_ACCELERATOR": "cpu"}
    loops: dict[str, Any] = {  # Any: Ray's handles have the actor's methods, and .remote
        layout: ray.remote(BareLoop)
        .options(num_cpus=1, runtime_env={"env_vars": env_vars})
        .remote(settings, objective, layout=layout)
        for layout in ("packed", "padded")
    }
    group = LearnerGroup(
        settings,
        num_ranks=1,
        num_cpus=1,
        num_gpus=0,
        timeout_s=_TIMEOUT_S,
        health_timeout_s=60.0,
    )
    try:
        rows, reference = np.arange(table.num_rows), ray.put(table)
        start = ray.put(group.logprobs(reference))
        pids = {"learner": group.pids()[0]}
        for name, loop in loops.items():
            pids[name] = ray.get(loop.pid.remote(), timeout=_TIMEOUT_S)
        before = {name: _reset_peak_mib(pid) for name, pid in pids.items()}
        seconds: dict[str, list[float]] = {name: [] for name in pids}
        for _ in range(NUM_ROUNDS):
            for name, loop in loops.items():
                updated = loop.update.remote(reference, rows, start)
                seconds[name].append(ray.get(updated, timeout=_TIMEOUT_S))
            seconds["learner"].append(group.update(reference, rows, objective, start).seconds)
        memory = {name: _peak_mib(pid) - before[name] for name, pid in pids.items()}
    finally:
        group.close()
    if find_spec("trl"):
        seconds["trl"] = _trl_seconds(settings, objective, table, env_vars)
    # The first update of each compiles, allocates and warms up.
    return {name: times[1:] for name, times in seconds.items()}, memory


def _trl_seconds(
    settings: LearnerSettings, objective: Objective, table: pa.Table, env_vars: dict[str, str]
) -> list[float]:
    options = {"num_cpus": 1, "runtime_env": {"env_vars": env_vars}}
    steps: Any = ray.remote(TrlSteps).options(**options).remote(settings, objective, table)
    try:
        return ray.get(steps.step_seconds.remote(NUM_ROUNDS), timeout=_TIMEOUT_S)
    finally:
        ray.kill(steps)


def _settings_and_table(folder: Path) -> tuple[LearnerSettings, pa.Table]:
    config = TrainConfig()
    game = get_game(GAME)
    turn_budget = game.tiers[TIER].turn_budget
    puzzles = build_puzzles(
        game=GAME, tier=TIER, count=NUM_ROWS, seed=_SEED, solve=StartSolver(GAME).cost
    )
    model_dir = folder / "model"
    build_initial_model(
        model_dir,
        game=GAME,
        turn_budget=turn_budget,
        puzzles=puzzles,
        policy=config.policy,
        max_tokens=_MAX_TOKENS,
        seed=_SEED,
    )
    played = demonstrations(
        puzzles,
        replace(
            config.warm_start,
            steps=1,
            careless_steps=0,
            trajectories_per_step=NUM_ROWS,
            mistake_probability=MISTAKE_PROBABILITY,
        ),
        tokenizer=ChatTokenizer(model_dir, read_chat_pieces(model_dir)),
        turn_budget=turn_budget,
        ends_dead=True,
        seed=_SEED,
    )
    settings = replace(learner_settings(config, model_dir=model_dir), num_threads=1)
    return settings, _with_made_up_credit(played)


def _with_made_up_credit(played: pa.Table) -> pa.Table:
    """Return the table with an advantage for every token: their values cost no time."""
    offsets = pa.array(row_offsets(played).astype(np.int32))
    values = np.random.default_rng(_SEED).normal(size=offsets[-1].as_py()).astype(np.float32)
    made_up = pa.ListArray.from_arrays(offsets, pa.array(values))
    with_advantages = played.append_column("token_advantages", made_up)
    return with_advantages.append_column("rollout_logprobs", made_up)


def _state_mib(model_dir: Path) -> float:
    """Return what an update's lasting tensors take: 2 + 4 + 4 + 4 + 4 bytes a weight."""
    weights = load_policy(model_dir, dtype=torch.bfloat16).parameters()
    return sum(weight.numel() for weight in weights) * 18 / 2**20


def _reset_peak_mib(pid: int) -> float:
    """Let Linux forget a process's largest resident size; return the present one."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _peak_mib(pid)


def _peak_mib(pid: int) -> float:
    """Return the largest resident size of a process since the last reset."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
