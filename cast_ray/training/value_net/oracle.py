"""The value network that a run uses as its oracle: checked at the start, copied into the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from cast_ray.config.train import TrainConfig
from cast_ray.envs.registry import is_benchmark
from cast_ray.errors import ConfigError
from cast_ray.functions import short_name
from cast_ray.runs.directories import make_partial, publish
from cast_ray.runs.remote_directories import localized
from solver_actors.registry import SolverEntry, get_solver_entry, has_solver
from solver_actors.value_net.network import SHAPE_FILE, WEIGHTS_FILE, check_fits, load_q_network
from solver_actors.value_net.scale import ValueNetOracle, ValueScale
from solver_actors.value_net.solver import value_net_entry


def check_oracle(config: TrainConfig) -> None:
    """Raise ModelError unless the run's value network, if it has one, fits its boards.

    Raises:
        ConfigError: the game lacks the solver that credit or a warm start needs.
    """
    if config.oracle == "value_net":
        _load(config, localized(config.value_net.path), device="cpu")
    elif config.oracle in ("exact", "expected"):
        entry = get_solver_entry(config.game)
        if config.oracle == "expected" and entry.expected_credit is None:
            raise ConfigError(
                f"oracle=expected averages over what a player cannot see, and the solver of "
                f"{short_name(config.game)} has no such average: set oracle=exact"
            )
    elif config.warm_start.steps and not (is_benchmark(config.game) or has_solver(config.game)):
        raise ConfigError(
            f"warm_start.steps={config.warm_start.steps} needs a solver that demonstrates, and "
            f"{short_name(config.game)} has none: set warm_start.steps=0"
        )


def keep_value_net(config: TrainConfig, directory: Path) -> None:
    """Copy a run's value network into the run, which no longer needs the original then.

    Args:
        config: of the run, checked.
        directory: of the copy; an existing one stays.
    """
    if config.oracle != "value_net" or directory.is_dir():
        return
    source, partial = localized(config.value_net.path), make_partial(directory)
    for name in (SHAPE_FILE, WEIGHTS_FILE):
        shutil.copyfile(source / name, partial / name)
    publish(partial, directory)


def value_net_of(config: TrainConfig, directory: Path) -> ValueNetOracle | None:
    """Return the value network for a run's oracles; None = they use the exact solvers.

    Args:
        config: of the run.
        directory: of the copy that ``keep_value_net`` made.

    Raises:
        ModelError: the network is damaged or does not fit the run's boards.
    """
    if config.oracle != "value_net":
        return None
    device = "cuda" if config.resources.gpus_per_oracle_actor else "cpu"
    return _load(config, directory, device=device)


def estimator_of(config: TrainConfig, directory: Path) -> SolverEntry | None:
    """Return the value network as a solver entry for this process; None = the run has none.

    Raises:
        ModelError: as for ``value_net_of``.
    """
    if config.oracle != "value_net":
        return None
    # Boards come one at a time: neither a GPU nor a second thread would make this faster.
    torch.set_num_threads(1)
    return value_net_entry(_load(config, directory, device="cpu"))


def _load(config: TrainConfig, directory: Path, *, device: str) -> ValueNetOracle:
    network = load_q_network(directory)
    check_fits(network, config.game, config.tier)
    chosen = config.value_net
    return ValueNetOracle(
        network=network,
        scale=ValueScale(scale=chosen.scale, failure=chosen.failure),
        device=device,
    )
