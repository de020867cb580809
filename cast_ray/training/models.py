"""The models that a run is given: by their commits, without known faults."""

from __future__ import annotations

from cast_ray.config.train import TrainConfig
from cast_ray.runs.hub import with_commits
from cast_ray.runs.remote_directories import sound_model
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.uris import hub_name


def find_models(
    config: TrainConfig, *, stored: TrainConfig | None, progress: TrainProgress
) -> TrainConfig:
    """Return a run's configuration with its models by their commits; they are here and sound.

    Engines and learner would load them minutes later, the reference model after the first step.

    Args:
        config: of the run.
        stored: that of the run that is resumed.
        progress: is told what commit a name stands for.

    Raises:
        ModelError, StorageError: a model is missing or damaged, or cannot be downloaded.
    """
    with progress.paused():  # downloads have bars of their own
        found = with_commits(config, stored=stored)
        for key, name in found.models.items():
            at_hub = bool(hub_name(name)[0])
            sound_model(name, called=f"{key}={name}", with_weights=at_hub, is_trained=True)
    for key, name in found.models.items():
        if name != config.models[key]:
            progress.note(f"{key}={name}")
    return found
