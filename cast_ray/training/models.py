"""The models that a run is given: looked at before anything starts."""

from __future__ import annotations

from pathlib import Path

from cast_ray.config.train import TrainConfig
from cast_ray.runs.remote_directories import sound_model
from cast_ray.runs.uris import path_or_uri


def check_models(config: TrainConfig) -> None:
    """Raise ModelError if a model of a run has a known fault.

    Engines and learner would load them minutes later, the reference model after the first step.
    """
    for key, name in config.models.items():
        is_here = isinstance(path_or_uri(name), Path)
        sound_model(name, called=f"{key}={name}", with_weights=is_here, is_trained=True)
