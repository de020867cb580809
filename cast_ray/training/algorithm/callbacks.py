"""Hooks of a run, with RLlib's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from cast_ray.training.algorithm.algorithm import Algorithm


class Callbacks:
    """Does nothing; override what you need, and give the class to ``AlgorithmConfig.callbacks``.

    All run in the driver, between the parts of a step. Tables are Arrow's and cannot be changed;
    results are copies. An exception ends the run; what was played and learned is kept.
    """

    def on_algorithm_init(self, *, algorithm: Algorithm, **kwargs: Any) -> None:
        """The run's parts are up, and no step of this process was taken."""

    def on_checkpoint_loaded(self, *, algorithm: Algorithm, **kwargs: Any) -> None:
        """The learner and the engines hold the weights of a checkpoint."""

    def on_episode_end(self, *, episode: pa.Table, algorithm: Algorithm, **kwargs: Any) -> None:
        """An episode of the step was played; one row of what ``on_sample_end`` gets."""

    def on_sample_end(self, *, samples: pa.Table, algorithm: Algorithm, **kwargs: Any) -> None:
        """All episodes of the step have their credit; ``BATCH_SCHEMA``, one row per episode."""

    def on_train_result(
        self, *, result: Mapping[str, Any], algorithm: Algorithm, **kwargs: Any
    ) -> None:
        """A step is done; ``result`` is what ``Algorithm.train`` returns."""

    def on_evaluate_start(self, *, algorithm: Algorithm, **kwargs: Any) -> None:
        """The held-out boards are about to be played."""

    def on_evaluate_end(
        self, *, evaluation_metrics: Mapping[str, Any], algorithm: Algorithm, **kwargs: Any
    ) -> None:
        """They were played; the metrics are what ``Algorithm.evaluate`` returns."""
