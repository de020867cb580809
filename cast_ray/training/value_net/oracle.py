"""The value network of a run: checked before anything starts, kept in the run's own directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from cast_ray.config.train import TrainConfig
from cast_ray.runs.directories import make_partial, publish
from cast_ray.runs.remote_directories import localized
from solver_actors.registry import SolverEntry, get_solver_entry
from solver_actors.value_net.network import SHAPE_FILE, WEIGHTS_FILE, check_fits, load_q_network
from solver_actors.value_net.scale import ValueNetOracle, ValueScale
from solver_actors.value_net.solver import value_net_entry


def check_value_net(config: TrainConfig) -> None:
    """Raise ModelError unless the value network that a run names can judge its boards.

    Raises:
        ConfigError: the run names none, and its game has no exact solver.
    """
    if config.oracle == "value_net":
        _load(config, localized(config.value_net.path), device="cpu")
    else:
        get_solver_entry(config.game)


def keep_value_net(config: TrainConfig, directory: Path) -> None:
    """Copy a run's value network into its directory: what becomes of the original plays no part.

    Args:
        config: of the run, checked.
        directory: where the copy is to be; one that is there stays.
    """
    if config.oracle != "value_net" or directory.is_dir():
        return
    source, partial = localized(config.value_net.path), make_partial(directory)
    for name in (SHAPE_FILE, WEIGHTS_FILE):
        shutil.copyfile(source / name, partial / name)
    publish(partial, directory)


def value_net_of(config: TrainConfig, directory: Path) -> ValueNetOracle | None:
    """Return what the oracles of a run ask; None = the exact solvers.

    Args:
        config: of the run.
        directory: the network's, as ``keep_value_net`` left it.

    Raises:
        ModelError: it is damaged, or does not fit the run's boards.
    """
    if config.oracle != "value_net":
        return None
    device = "cuda" if config.resources.gpus_per_oracle_actor else "cpu"
    return _load(config, directory, device=device)


def estimator_of(config: TrainConfig, directory: Path) -> SolverEntry | None:
    """Return the same network as what makes solvers, for use in this process; None = it has none.

    Raises:
        ModelError: as for ``value_net_of``.
    """
    if config.oracle != "value_net":
        return None
    # Boards come one at a time here: a GPU, which this machine need not have, would not help, and
    # two threads wait for each other longer than one computes.
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
