"""Seconds until the command line, Ray, an engine behind Serve and vLLM alone respond.

Both engines have the same small model and arguments, and are started in turns in one Ray, each
until it has answered one request. Every import is measured in a new process, after a first one that
warms the file cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import ray

from benchmarks.bare_engine import Conversation
from benchmarks.rollout import BareActor, engine_options
from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.config.resources import ResourcesConfig
from cast_ray.games import get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.rollout.generate import GenerateRequest
from cast_ray.training.warm_start import build_initial_model
from serve.engine.deployment import ENGINE_ENVIRONMENT, deploy_engines
from serve.messages import EngineOptions
from solver_actors.registry import StartSolver

_START_TIMEOUT_S = 300.0
_ONE_TURN = Conversation(
    first=GenerateRequest(
        token_ids=(1, 2, 3),
        max_tokens=1,
        temperature=1.0,
        top_p=1.0,
        seed=0,
        stop_token_ids=(),
    ),
    seeds=(0,),
    observations=(),
)
_IMPORTS = {
    "core": "import cast_ray.games, solver_actors.registry",
    "ray": "import ray",
    "vllm": "import vllm",
    "trl": "from trl import GRPOTrainer",
}


def bench_startup(*, repeats: int = 3) -> dict[str, float]:
    """Return seconds, medians of ``repeats``; ``engine_over_bare`` is a ratio.

    ``import_…``: a new Python process that imports a package, if it is installed; ``help``:
    ``cast-ray --help``; ``ray``: until Ray's session is ready; ``engine`` and ``bare_engine``:
    until the first answer, behind Serve with its checks, and of vLLM's AsyncLLM alone in an actor.
    """
    figures = {
        f"import_{name}_seconds": _median(_process, [sys.executable, "-c", code], repeats)
        for name, code in _IMPORTS.items()
        if find_spec(code.split()[1].partition(".")[0]) is not None
    }
    command = str(Path(sys.executable).parent / "cast-ray")
    figures["help_seconds"] = _median(_process, [command, "--help"], repeats)
    with tempfile.TemporaryDirectory() as folder:
        options = _options(Path(folder))
        begun = time.perf_counter()
        with ray_session(num_cpus=4):
            figures["ray_seconds"] = round(time.perf_counter() - begun, 2)
            seconds = [
                (_engine_seconds(options, f"bench-{n}", folder), _bare_seconds(options))
                for n in range(repeats + 1)
            ][1:]  # the first one warms the file cache
    engine, bare = (float(np.median(side)) for side in zip(*seconds, strict=True))
    return figures | {
        "engine_seconds": round(engine, 2),
        "bare_engine_seconds": round(bare, 2),
        "engine_over_bare": round(engine / bare, 2),
        "repeats": repeats,
    }


def _median(measure: Callable[[list[str]], float], command: list[str], repeats: int) -> float:
    measure(command)
    return round(float(np.median([measure(command) for _ in range(repeats)])), 2)


def _process(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=_START_TIMEOUT_S)
    return time.perf_counter() - begun


def _options(folder: Path) -> EngineOptions:
    """Create the quickstart's small model and return the options of an engine for it."""
    config = load_config(None, [])
    tier = get_game(config.game).tiers[config.tier]
    puzzles = build_puzzles(
        game=config.game, tier=config.tier, count=8, seed=0, solve=StartSolver(config.game).cost
    )
    build_initial_model(
        folder / "model",
        game=config.game,
        turn_budget=tier.turn_budget,
        puzzles=puzzles,
        policy=config.policy,
        max_tokens=config.rollout.prompt_tokens,
        seed=0,
    )
    return engine_options(config, folder / "model")


def _engine_seconds(options: EngineOptions, run_id: str, folder: str) -> float:
    begun = time.perf_counter()
    engines = deploy_engines(
        run_id, options, ResourcesConfig(), weights_directory=f"{folder}/no-weights"
    )
    try:
        return time.perf_counter() - begun
    finally:
        engines.remove()


def _bare_seconds(options: EngineOptions) -> float:
    begun = time.perf_counter()
    environment = {**ENGINE_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    options_of = BareActor.options(runtime_env={"env_vars": environment})
    bare: Any = options_of.remote(options)  # Any: Ray's handles have the actor's methods
    try:
        ray.get(bare.replay.remote([_ONE_TURN], 1), timeout=_START_TIMEOUT_S)
        return time.perf_counter() - begun
    finally:
        ray.kill(bare)
