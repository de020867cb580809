"""Copies of a run directory: a checkpoint of a whole run, and a new run that begins from one."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from cast_ray.config.load import load_config, save_config
from cast_ray.config.reference import differing_values
from cast_ray.config.train import TrainConfig
from cast_ray.errors import RunDirectoryError
from cast_ray.files import is_taken, refusals_named
from cast_ray.runs.directories import new_run_dir
from cast_ray.runs.hub import with_commits
from cast_ray.runs.run_directory import CHANGEABLE_KEYS, RunDirectory
from cast_ray.runs.tracking.tracker import IDENTITY

_LEFT_OUT = (
    ".lock", "starts.txt", "summary.json", "report.html", "model", "inspection",
    IDENTITY, "wandb", "mlflow",
)  # fmt: skip
"""Of this process, of the end of a run, or of trackers. ``starts.txt`` names live engines."""
_TUNED = ("advantage.", "objective.", "distillation.", "evaluation.", "learner.")
_TUNED_KEYS = CHANGEABLE_KEYS | {"run_dir", "steps", "algorithm"}
_FIXED_KEYS = frozenset({"learner.dtype", "learner.lora_rank", "learner.lora_alpha"})
"""Of those sections: what the state of the optimizer depends on."""


def copy_run(source: RunDirectory, target: Path) -> None:
    """Copy a run with its newest checkpoint; large files that never change become links.

    Raises:
        RunDirectoryError: the target is not empty.
    """
    if is_taken(target):
        raise RunDirectoryError(f"{target} is not empty: give another directory for the copy")
    newest = source.resume_point().checkpoint

    def left_out(folder: str, names: list[str]) -> set[str]:
        gone = {name for name in names if name.endswith(".partial")}
        if Path(folder) == source.path:
            gone |= set(_LEFT_OUT) & set(names)
        if Path(folder) == source.checkpoints:
            gone |= {name for name in names if source.checkpoints / name != newest}
        return gone

    with refusals_named(target):
        shutil.copytree(
            source.path, target, ignore=left_out, copy_function=_link_or_copy, dirs_exist_ok=True
        )


def branch_run(source: RunDirectory, config: TrainConfig) -> TrainConfig:
    """Make the run directory of a new run that begins from a checkpoint of another.

    Args:
        source: the checkpoint, a run directory.
        config: of the new run; credit, objective, learning rate, evaluation and resources may
            differ. An empty ``run_dir`` gets a name in ``runs/``.

    Returns:
        The same with its ``run_dir``.

    Raises:
        RunDirectoryError: something else differs; the message lists the keys.
    """
    stored = load_config(source.config, [], is_stored=True)
    config = with_commits(config, stored=stored)
    refused = [
        text
        for key, text in differing_values(stored, config).items()
        if key in _FIXED_KEYS or not (key in _TUNED_KEYS or key.startswith(_TUNED))
    ]
    if refused:
        raise RunDirectoryError(
            f"{source.path} belongs to another configuration: {', '.join(refused)}; start with the "
            "same values, or without the checkpoint"
        )
    if not config.run_dir:
        config = replace(config, run_dir=new_run_dir(config.title))
    target = RunDirectory(Path(config.run_dir))
    copy_run(source, target.path)
    if differing_values(stored, replace(config, run_dir=stored.run_dir)):
        step = source.resume_point().step
        target.config.rename(target.config_until(step))
        if target.trajectory_file(step + 1).is_file():  # by the old values, as all later ones
            target.set_aside(step + 1)
    save_config(config, target.config)
    return config


def _link_or_copy(source: str, target: str) -> None:
    """Link what is written once; copy what is appended to or amended."""
    if source.endswith((".safetensors", ".pt")) or "/trajectories/" in source:
        try:
            os.link(source, target)
            return
        except OSError:  # another file system
            pass
    shutil.copy2(source, target)
