"""Ranks of the learner as a test wants them; the rest is in ``learner_reference``."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray

from cast_ray.config.learning import ObjectiveConfig
from cast_ray.learner.actor import LearnerActor, as_actor_class
from cast_ray.learner.settings import LearnerSettings
from tests.support.learner_reference import DAPO, ROWS, SGD_LR, ProbeLearner


class SlowlyRead(LearnerSettings):
    """Settings that keep a process from answering, as long imports do, before it is there."""

    def __reduce__(self) -> tuple:
        return _read_slowly, ({f.name: getattr(self, f.name) for f in fields(self)},)


def _read_slowly(values: dict) -> LearnerSettings:
    time.sleep(10)  # what long imports take
    return LearnerSettings(**values)


class ProbeActor(LearnerActor):
    """A rank with a ``ProbeLearner``, whose weights can be read and put back."""

    def start(self, master_addr: str, master_port: int) -> None:
        self._learner = ProbeLearner(
            self._settings,
            rank=self._rank,
            world_size=self._world_size,
            master_addr=master_addr,
            master_port=master_port,
        )

    def weights(self) -> dict[str, np.ndarray]:
        state = self._learner.state_for_sync()
        return {name: weight.float().numpy() for name, weight in state.items()}

    def adapter_inputs(self) -> dict[str, np.ndarray]:
        """A of every adapter, by the name of the layer it sits on."""
        state = self._learner._policy.model.state_dict()
        end = ".lora_A.default.weight"
        return {
            name.removesuffix(end): a.detach().numpy().copy()
            for name, a in state.items()
            if name.endswith(end)
        }

    def has_reference(self) -> bool:
        return self._learner._reference is not None

    def cut(self, tokens_per_micro_batch: int) -> None:
        self._learner.tokens_per_micro_batch = tokens_per_micro_batch


class Probes:
    """Some ranks of ``ProbeActor``, called together."""

    def __init__(self, settings: LearnerSettings, *, num_ranks: int, start: Path) -> None:
        environment = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        actor = as_actor_class(ProbeActor).options(
            num_cpus=0.1, runtime_env={"env_vars": environment}
        )
        self.ranks = [
            actor.remote(settings, rank=rank, world_size=num_ranks) for rank in range(num_ranks)
        ]
        self.start = start
        address = ray.get(self.ranks[0].open_rendezvous.remote(), timeout=180)
        self.call("start", *address)
        self.call("save_checkpoint", start, {})

    def call(self, method: str, *arguments: object) -> object:
        """Call a method on every rank; return what rank 0 returned."""
        results = [getattr(rank, method).remote(*arguments) for rank in self.ranks]
        return ray.get(results, timeout=180)[0]

    def gradient(
        self,
        table: pa.Table,
        start_logprobs: np.ndarray,
        objective: ObjectiveConfig = DAPO,
        *,
        rows: np.ndarray = ROWS,
        reference_logprobs: np.ndarray | None = None,
        tokens_per_micro_batch: int = 180,
    ) -> tuple[dict[str, np.ndarray], object]:
        """Return every weight's gradient and the stats of one update from the first weights."""
        self.call("load_checkpoint", self.start)
        self.call("cut", tokens_per_micro_batch)
        before = self.call("weights")
        stats = self.call("update", table, rows, objective, start_logprobs, reference_logprobs)
        after = self.call("weights")
        return {name: (before[name] - after[name]) / SGD_LR for name in before}, stats

    def close(self) -> None:
        for rank in self.ranks:
            ray.kill(rank)
