"""A double of the learner that sleeps instead of learning, to measure what is around it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

from cast_ray.config.learning import ObjectiveConfig
from cast_ray.learner.batching import flat_column
from cast_ray.learner.settings import UpdateStats
from cast_ray.runs.directories import make_partial, publish
from cast_ray.weights.manifest import WeightManifest


class SleepingLearner:
    """Has the methods of ``LearnerGroup`` that a training loop calls."""

    def __init__(self, *, seconds_per_update: float) -> None:
        """Set the duration of an update."""
        self.seconds_per_update = seconds_per_update

    def logprobs(self, table: ray.ObjectRef) -> np.ndarray:
        """Return the engine's logprobs."""
        return flat_column(ray.get(table, timeout=60), "rollout_logprobs")

    def update(
        self,
        table: ray.ObjectRef,
        rows: np.ndarray,
        objective: ObjectiveConfig,
        start_logprobs: ray.ObjectRef,
        reference_logprobs: ray.ObjectRef | None = None,
    ) -> UpdateStats:
        """Sleep."""
        time.sleep(self.seconds_per_update)
        return UpdateStats(
            is_applied=True,
            loss=0.0,
            grad_norm=0.0,
            num_tokens=len(rows),
            clip_fraction=0.0,
            entropy=0.0,
            kl=0.0,
            seconds=self.seconds_per_update,
        )

    def publish_weights(self, directory: Path, *, version: int, dtype: str) -> WeightManifest:
        """Return a manifest that has only a version; no file is written."""
        return WeightManifest(
            version=version, path="", num_bytes=0, checksum="", piece_bytes=1, tensors=()
        )

    def node_id(self) -> str:
        """Return nothing: no host has the weights."""
        return ""

    def save_checkpoint(self, directory: Path, client_state: dict[str, Any]) -> None:
        """Publish a directory without weights."""
        publish(make_partial(directory), directory)

    def close(self) -> None:
        """Do nothing: there is no process."""
