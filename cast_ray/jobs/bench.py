"""The benchmarks by name, each a function that gives its figures under plain names with units."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cast_ray.errors import ConfigError
from cast_ray.jobs.bench_gym import bench_gym
from cast_ray.jobs.bench_learner import bench_learner
from cast_ray.jobs.bench_rollout import bench_rollout
from cast_ray.jobs.bench_simulated import bench_simulated
from cast_ray.jobs.bench_solve import bench_solve
from cast_ray.jobs.bench_solvers import bench_solvers
from cast_ray.jobs.bench_sync import bench_sync

BENCHMARKS: dict[str, Callable[[], Mapping[str, float]]] = {
    "gym": bench_gym,
    "learner": bench_learner,
    "rollout": bench_rollout,
    "simulated": bench_simulated,
    "solve": bench_solve,
    "solvers": bench_solvers,
    "sync": bench_sync,
}


def run_benchmark(what: str) -> Mapping[str, float]:
    """Return the figures of one benchmark, measured on this machine now.

    Raises:
        ConfigError: there is no such benchmark.
    """
    if what not in BENCHMARKS:
        raise ConfigError(f"the benchmark must be one of {', '.join(BENCHMARKS)}, got {what!r}")
    return BENCHMARKS[what]()
