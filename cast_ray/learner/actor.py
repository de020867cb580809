"""One rank of the learner as a Ray process; ``group`` calls all ranks together."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from cast_ray.config.learning import ObjectiveConfig
from cast_ray.errors import WeightSyncError
from cast_ray.functions import keep_sources
from cast_ray.learner.settings import LearnerSettings, UpdateStats
from cast_ray.runs.remote_directories import localized, sound_model
from cast_ray.runs.uris import PathOrUri
from cast_ray.weights.broadcast import WeightSender
from cast_ray.weights.group import Meeting, open_store
from cast_ray.weights.manifest import WeightManifest, publish_weights

_HEALTH = "health"
"""Concurrency group of the methods that answer while another one computes."""


class LearnerActor:
    """A process that holds one rank. It is started once the first rank's address is known."""

    def __init__(self, settings: LearnerSettings, *, rank: int, world_size: int) -> None:
        self._settings, self._rank, self._world_size = settings, rank, world_size

    @ray.method(concurrency_group=_HEALTH)
    def is_alive(self) -> bool:
        """Return True, also while another method runs."""
        return True

    def pid(self) -> int:
        """Return the process id of this rank."""
        return os.getpid()

    def node_id(self) -> str:
        """Return Ray's name of this rank's host."""
        return ray.get_runtime_context().get_node_id()

    def open_rendezvous(self) -> tuple[str, int]:
        """Listen at this node's address for all ranks; return it and the port."""
        address = ray.util.get_node_ip_address()
        self._store = open_store(address)
        return address, self._store.port

    def start(self, master_addr: str, master_port: int) -> None:
        """Load the policy, downloaded first if it is at a URI, and join the other ranks."""
        # Imported here because only a rank needs DeepSpeed, not the driver that imports this class.
        from cast_ray.learner.learner import Learner

        settings = self._settings
        keep_sources(settings.sources)
        reference = settings.reference_dir and sound_model(settings.reference_dir, is_trained=True)
        self._learner = Learner(
            replace(
                settings,
                model_dir=str(localized(settings.model_dir)),
                reference_dir=str(reference),
            ),
            rank=self._rank,
            world_size=self._world_size,
            master_addr=master_addr,
            master_port=master_port,
        )

    def logprobs(self, table: pa.Table) -> np.ndarray:
        """See ``Learner.logprobs``."""
        return self._learner.logprobs(table)

    def reference_logprobs(self, table: pa.Table) -> np.ndarray:
        """See ``Learner.reference_logprobs``."""
        return self._learner.reference_logprobs(table)

    def update(
        self,
        table: pa.Table,
        rows: np.ndarray,
        objective: ObjectiveConfig,
        start_logprobs: np.ndarray,
        reference_logprobs: np.ndarray | None = None,
    ) -> UpdateStats:
        """See ``Learner.update``."""
        return self._learner.update(table, rows, objective, start_logprobs, reference_logprobs)

    def supervised_update(self, table: pa.Table, rows: np.ndarray, lr: float) -> UpdateStats:
        """See ``Learner.supervised_update``."""
        return self._learner.supervised_update(table, rows, lr=lr)

    def release_memory(self) -> None:
        """Give back to the GPU what torch keeps of it for later, for the engine that shares it."""
        import torch

        gc.collect()
        torch.cuda.empty_cache()

    def publish_weights(self, directory: str, version: int, dtype: str) -> WeightManifest | None:
        """Write the weights for the engines; the manifest comes from rank 0 alone."""
        state = self._learner.state_for_sync()
        if not state:
            return None
        # Rounded here, once, so that what is sent is exactly what an engine holds.
        return publish_weights(state, directory=directory, version=version, dtype=dtype)

    def open_broadcast(self, manifest: WeightManifest, world_size: int) -> Meeting:
        """Check a version that was published here, and open the address for its receivers."""
        self._sender = WeightSender(
            manifest,
            address=ray.util.get_node_ip_address(),
            world_size=world_size,
        )
        return self._sender.meeting

    def send_broadcast(self, timeout_s: float) -> WeightSyncError | None:
        """Send the opened version once; return the error, if any.

        It is not raised because a failed call ends all ranks, and nothing is wrong with these.
        """
        try:
            self._sender.send(timeout_s=timeout_s)
        except WeightSyncError as error:
            return error
        finally:
            del self._sender  # its file, and the port
        return None

    def save_model(self, directory: PathOrUri) -> None:
        """See ``Learner.save_model``."""
        self._learner.save_model(directory)

    def save_checkpoint(self, directory: PathOrUri, client_state: dict[str, Any]) -> None:
        """See ``Learner.save_checkpoint``."""
        self._learner.save_checkpoint(directory, client_state)

    def load_checkpoint(self, directory: PathOrUri) -> dict[str, Any]:
        """See ``Learner.load_checkpoint``."""
        return self._learner.load_checkpoint(directory)


def as_actor_class(kind: type[LearnerActor]) -> Any:
    """Return Ray's class for a kind of rank; Any: it has the methods, and .options and .remote."""
    make: Any = ray.remote  # Any: its types know no concurrency groups
    return make(concurrency_groups={_HEALTH: 1})(kind)
