"""The models that a run is given: by their commits, without known faults, the same when resumed."""

from __future__ import annotations

import json
from pathlib import Path

from blake3 import blake3

from cast_ray.config.train import TrainConfig
from cast_ray.errors import RunDirectoryError
from cast_ray.files import read_record, write_text
from cast_ray.runs.hub import with_commits
from cast_ray.runs.model_files import weight_files
from cast_ray.runs.remote_directories import localized, sound_model
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory


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
            is_here = "://" not in name
            sound_model(name, called=f"{key}={name}", with_weights=is_here, is_trained=True)
    for key, name in found.models.items():
        if name != config.models[key]:
            progress.note(f"{key}={name}")
    return found


def moved_models(
    directory: RunDirectory, config: TrainConfig, *, stored: TrainConfig | None = None
) -> set[str]:
    """Return the keys of models that lie elsewhere than when the run was started.

    Their digests are noted when the run is new; of models in a store they are not known.

    Args:
        directory: of the run.
        config: of the run.
        stored: that of the run that is resumed.

    Raises:
        RunDirectoryError: one is another model.
    """
    before = config.models if stored is None else stored.models
    if before == config.models:
        here = {key: name for key, name in before.items() if "://" not in name}
        if here and not directory.models.is_file():
            digests = {key: model_digest(localized(name)) for key, name in here.items()}
            write_text(directory.models, json.dumps(digests, indent=1) + "\n")
        return set()
    is_noted = directory.models.is_file()
    noted = read_record(directory.models, dict[str, str]) if is_noted else {}
    moved = {key for key in noted if config.models.get(key) not in (None, before.get(key))}
    for key in moved:
        if model_digest(localized(config.models[key])) != noted[key]:
            raise RunDirectoryError(
                f"{key}={config.models[key]} has other weights or another tokenizer than "
                f"{before.get(key)}, with which {directory.address} was started: give that model, "
                "or another run_dir=PATH"
            )
    return moved


def model_digest(directory: Path) -> str:
    """Return what identifies weights, tokenizer and chat template of a model, wherever it lies."""
    digest = blake3(max_threads=blake3.AUTO)
    texts = (*directory.glob("tokenizer*.json"), *directory.glob("chat_template*"))
    for file in sorted((*weight_files(directory), *texts)):
        digest.update(f"{file.name} {file.stat().st_size} ".encode())
        digest.update_mmap(file)
    return digest.hexdigest()
