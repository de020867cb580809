"""Processes that hold one learner after the other: a fresh learner without a fresh process.

Starting a process and importing DeepSpeed takes many times as long as starting a learner in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ray
import torch
from safetensors.torch import load_file

from cast_ray.learner.actor import LearnerActor, as_actor_class
from cast_ray.learner.learner import Learner
from cast_ray.learner.settings import LearnerSettings


class ReusedActor(LearnerActor):
    """A rank whose learner can be exchanged for a fresh one."""

    def __init__(self) -> None:
        self._learner: Learner | None = None

    def begin(
        self, settings: LearnerSettings, rank: int, world_size: int, address: tuple[str, int]
    ) -> None:
        if self._learner is not None:
            self._learner.close()
        self._settings, self._rank, self._world_size = settings, rank, world_size
        self.start(*address)

    def weights(self) -> dict[str, np.ndarray]:
        """The weights as they are sent to engines."""
        return {name: w.float().numpy() for name, w in self._learner.state_for_sync().items()}

    def draw(self) -> list[float]:
        """Random numbers of every rank: the next ones, more of them the higher the rank."""
        return torch.rand(self._rank + 1).tolist()


class LearnerProcesses:
    """Two processes, and the learner that the first ones of them hold."""

    def __init__(self) -> None:
        environment = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        actor = as_actor_class(ReusedActor).options(
            num_cpus=0.1, runtime_env={"env_vars": environment}
        )
        self._processes = [actor.remote() for _ in range(2)]
        self._ranks: list = []

    def begin(self, settings: LearnerSettings, *, num_ranks: int) -> None:
        """Start a learner in place of the present one."""
        self._ranks = self._processes[:num_ranks]
        address = ray.get(self._ranks[0].open_rendezvous.remote(), timeout=400)
        begun = [
            process.begin.remote(settings, rank, num_ranks, address)
            for rank, process in enumerate(self._ranks)
        ]
        # The first start imports DeepSpeed, on a busy machine for minutes.
        ray.get(begun, timeout=400)

    def call(self, method: str, *arguments: object) -> object:
        """Call a method on every rank; return what rank 0 returned."""
        return self.call_all(method, *arguments)[0]

    def call_all(self, method: str, *arguments: object) -> list:
        """Call a method on every rank; return what each returned."""
        results = [getattr(rank, method).remote(*arguments) for rank in self._ranks]
        return ray.get(results, timeout=180)


def tensors_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint by kind and name, the random states too."""
    return {
        f"{path.name.split('-')[0]} {name}": tensor
        for path in sorted(checkpoint.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }
