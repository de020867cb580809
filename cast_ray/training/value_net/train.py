"""Trains a value network in three stages; a resumed run keeps the finished ones."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from cast_ray.cluster.session import ray_session
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.datasets.splits import HELD_OUT, Boards, make_boards, read_boards, write_boards
from cast_ray.errors import ConfigError
from cast_ray.runs.uris import Uri, path_or_uri
from cast_ray.seeds import derive_seed
from cast_ray.training.value_net.directory import STAGES, BaseCheckpoints, ValueNetDirectory
from cast_ray.training.value_net.distill import regress, stage_targets
from cast_ray.training.value_net.dqn import BaseRound, network_shape, train_base
from cast_ray.training.value_net.env import StartSettings, start_settings
from cast_ray.training.value_net.progress import ValueNetProgress
from cast_ray.training.value_net.states import StateCollector, States
from solver_actors.value_net.network import QNetwork, load_q_network, save_q_network


def train_value_net(
    config: ValueNetConfig,
    *,
    resume: bool,
    progress: ValueNetProgress,
    is_dead: Callable[[Any], bool] | None = None,
) -> ValueNetDirectory:
    """Train or resume the training of a value network and return its directory.

    Args:
        config: of the network; ``run_dir`` names the directory.
        resume: whether to resume the run there. Finished stages are not repeated.
        progress: shows the user what happens.
        is_dead: ends games that can no longer be won, as failures; None = none are ended. Any:
            each game has its own state type.

    Raises:
        CastRayError: the input or the machine is not fit; nothing is overwritten.
    """
    run_dir = path_or_uri(config.run_dir)
    if isinstance(run_dir, Uri):
        raise ConfigError(f"run_dir must be a local directory, got {config.run_dir}")
    network_shape(config)  # refuses a game without numeric boards before anything is written
    _check_device(config.device)
    with ValueNetDirectory.open(run_dir, config, resume=resume) as run:
        progress.say("choosing puzzles")
        start = start_settings(config, _boards(run, config).train, is_dead=is_dead)
        return _Stages(config, run, start, progress).train()


class _Stages:
    """One training and its stages."""

    def __init__(
        self,
        config: ValueNetConfig,
        run: ValueNetDirectory,
        start: StartSettings,
        progress: ValueNetProgress,
    ) -> None:
        self._config = config
        self._run = run
        self._start = start
        self._progress = progress
        self._collected: States | None = None

    def train(self) -> ValueNetDirectory:
        """Train the stages that are not finished."""
        for stage in STAGES:
            self._stage(stage)
        save_q_network(load_q_network(self._run.network(STAGES[-1])), self._run.value_net)
        summary = {
            "game": self._config.game,
            "tier": self._config.tier,
            "seed": self._config.seed,
            "boards": len(self._start.boards),
            "seconds": {
                row["stage"]: row["seconds"] for row in self._run.rows() if "seconds" in row
            },
        }
        self._run.write_summary(summary)
        self._progress.say(f"the value network is in {self._run.value_net}")
        return self._run

    def _stage(self, stage: str) -> None:
        """Train a stage's network unless it is finished."""
        directory = self._run.network(stage)
        if self._run.has(directory):
            self._progress.say(f"{stage} is finished: {directory}")
            return
        started = time.perf_counter()
        network = self._train_base() if stage == "base" else self._distill(stage)
        save_q_network(network, directory)
        if stage == "base":
            self._checkpoints.clear()
        # Of this process; how long interrupted ones took is not known.
        self._run.log({"stage": stage, "seconds": round(time.perf_counter() - started, 1)})

    @property
    def _checkpoints(self) -> BaseCheckpoints:
        return BaseCheckpoints(self._run.checkpoints)

    def _train_base(self) -> QNetwork:
        total = self._config.dqn.steps
        self._run.forget("base", beyond=self._checkpoints.newest()[0])

        def on_round(round_: BaseRound) -> None:
            self._run.log({"stage": "base"} | asdict(round_))
            success, loss = (
                "?" if value is None else form.format(value)
                for value, form in ((round_.success, "{:.0%}"), (round_.loss, "{:.2e}"))
            )
            figures = f"{success} solved, loss {loss}, {round_.steps_per_s:,.0f} steps/s"
            self._progress.show("base", round_.steps, total, figures)

        # Its warnings are about its own new API stack and modules.
        logging.getLogger("ray.rllib").setLevel(logging.ERROR)
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        with ray_session(num_cpus=1 + self._config.dqn.num_env_runners):
            return train_base(
                self._config,
                self._start,
                self._checkpoints,
                on_round=on_round,
                on_note=self._progress.say,
            )

    def _distill(self, stage: str) -> QNetwork:
        """Return the network of a regression stage (``distill``)."""
        config, settings = self._config, self._config.distillation
        self._run.forget(stage)
        is_first = stage == STAGES[1]
        torch.set_num_threads(config.num_threads)
        before = load_q_network(self._run.network(STAGES[STAGES.index(stage) - 1]))
        before = before.to(config.device)
        states = self._states()
        targets = stage_targets(
            before,
            states,
            gamma=config.dqn.gamma,
            step_penalty=config.dqn.step_penalty,
            prior_weight=0.0 if is_first else settings.prior_weight,
        )

        def on_epoch(epoch: int, loss: float) -> None:
            self._run.log({"stage": stage, "epoch": epoch, "loss": loss})
            self._progress.show(stage, epoch, settings.epochs, f"loss {loss:.2e}")

        return regress(
            before,
            states,
            targets,
            epochs=settings.epochs,
            lr=settings.first_lr if is_first else settings.second_lr,
            batch_size=settings.batch_size,
            seed=derive_seed(config.seed, "value_net", stage),
            on_epoch=on_epoch,
        )

    def _states(self) -> States:
        """Return the states of both regressions: those met while the base network plays."""
        if self._collected is None:
            settings = self._config.distillation
            self._progress.say("collecting states")
            base = load_q_network(self._run.network(STAGES[0])).to(self._config.device)
            seed = derive_seed(self._config.seed, "value_net", "states")
            collector = StateCollector(self._start, rng=np.random.default_rng(seed))
            met = collector.collect(base, num_states=settings.num_states, epsilon=settings.epsilon)
            self._collected = collector.with_successors(met)
            self._run.forget("states")
            self._run.log(
                {
                    "stage": "states",
                    "states": len(self._collected.cells),
                    "moves": len(self._collected.state_of),
                    "successors": len(self._collected.next_cells),
                }
            )
        return self._collected


def _boards(run: ValueNetDirectory, config: ValueNetConfig) -> Boards:
    """Return the run's puzzles; no held-out one is symmetric to a training puzzle."""
    if (run.puzzles / HELD_OUT).is_file():
        return read_boards(run.puzzles)
    boards = make_boards(config.game, config.tier, config.puzzles)
    os.makedirs(run.puzzles, exist_ok=True)
    write_boards(boards, run.puzzles)
    return boards


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch finds no GPU on this machine: set device=cpu")
