"""The benchmarks by name: functions that return figures under plain names with units.

``cast_ray.cli.bench`` says what each of them measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.asynchronous import bench_asynchronous
from benchmarks.evaluation import bench_evaluation
from benchmarks.gym import bench_gym
from benchmarks.learner import bench_learner
from benchmarks.rollout import bench_rollout
from benchmarks.scaling import bench_scaling
from benchmarks.scaling_plot import check_plot, plot_scaling
from benchmarks.service import bench_service
from benchmarks.simulated import bench_simulated
from benchmarks.solvers import bench_solve, bench_solvers
from benchmarks.startup import bench_startup
from benchmarks.sync import bench_sync
from cast_ray.errors import ConfigError


def _bench_value_net() -> Mapping[str, float]:
    # Imported late: RLlib takes 3 s and 340 MB, which the others do not need.
    from benchmarks.value_net import bench_value_net

    return bench_value_net()


BENCHMARKS: dict[str, Callable[[], Mapping[str, float]]] = {
    "asynchronous": bench_asynchronous,
    "evaluation": bench_evaluation,
    "gym": bench_gym,
    "learner": bench_learner,
    "rollout": bench_rollout,
    "scaling": bench_scaling,
    "service": bench_service,
    "simulated": bench_simulated,
    "solve": bench_solve,
    "solvers": bench_solvers,
    "startup": bench_startup,
    "sync": bench_sync,
    "value-net": _bench_value_net,
}


def run_benchmark(what: str, *, plot: Path | None = None) -> Mapping[str, float]:
    """Run one benchmark on this machine and return its figures.

    Args:
        what: its name.
        plot: SVG file for a plot, of ``scaling`` only; None = no plot.

    Raises:
        ConfigError: there is no such benchmark, or no plot of it.
    """
    if what not in BENCHMARKS:
        raise ConfigError(f"the benchmark must be one of {', '.join(BENCHMARKS)}, got {what!r}")
    if plot is not None:
        if what != "scaling":
            raise ConfigError(f"{what} has no plot: give --plot with scaling only")
        check_plot(plot)
    figures = BENCHMARKS[what]()
    if plot is not None:
        plot_scaling(figures, plot)
    return figures
