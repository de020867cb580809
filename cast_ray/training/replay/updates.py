"""Repeats a run's updates from its trajectory log and compares the weights with its checkpoints.

With the same ranks and learner threads every byte of every checkpoint must be equal, no matter how
often the run was killed and resumed.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cast_ray.cluster.placement import reserved_cpus
from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.errors import RunDirectoryError
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces, stored_chat_pieces
from cast_ray.runs.remote_directories import localized
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.update import learn
from cast_ray.training.workers import start_learner


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatesReplay:
    """The result of the comparison."""

    num_steps: int
    compared: tuple[str, ...]
    """Files of weights and moments, relative to the run directory."""
    differing: tuple[str, ...]


def replay_updates(run_dir: Path) -> UpdatesReplay:
    """Learn again from every logged step, starting from the start model.

    Args:
        run_dir: of a run that keeps at least one checkpoint.

    Raises:
        RunDirectoryError: there is no run, or it has no checkpoint.
        TrajectoryError: a step's trajectories cannot be read.
    """
    run = RunDirectory.existing(run_dir)
    config = load_config(run.config, [], is_stored=True)
    if earlier := run.earlier_configs():
        raise RunDirectoryError(
            f"{run_dir} began from a checkpoint with other values after step {max(earlier)}: "
            "--updates repeats the updates of one configuration only; leave it out"
        )
    last = run.last_logged_step
    checkpoints = [step for step in range(1, last + 1) if run.checkpoint(step).is_dir()]
    if not checkpoints:
        raise RunDirectoryError(f"{run_dir} has no checkpoint to compare the repeated updates with")
    given = localized(config.policy.path) if config.policy.path else run.initial_model
    start = run.start_model if run.start_model.is_dir() else given
    pieces = stored_chat_pieces(run.path) or read_chat_pieces(start)
    tokenizer = ChatTokenizer(start, pieces)
    compared: list[str] = []
    differing: list[str] = []
    with ExitStack() as parts:
        scratch = Path(parts.enter_context(tempfile.TemporaryDirectory()))
        parts.enter_context(ray_session(num_cpus=reserved_cpus(config)))
        learner = start_learner(config, model_dir=start)
        parts.callback(learner.close)
        for step in range(1, checkpoints[-1] + 1):
            learn(learner, run.read_trajectories(step), tokenizer, config, step=step)
            if step in checkpoints:
                again = scratch / f"step-{step}"
                learner.save_checkpoint(again, {})
                for stored in sorted(run.checkpoint(step).glob("*-*.safetensors")):
                    name = str(stored.relative_to(run.path))
                    compared.append(name)
                    if stored.read_bytes() != (again / stored.name).read_bytes():
                        differing.append(name)
    return UpdatesReplay(
        num_steps=checkpoints[-1], compared=tuple(compared), differing=tuple(differing)
    )


def format_updates(found: UpdatesReplay) -> str:
    """Return the outcome as text."""
    text = (
        f"The updates of {found.num_steps} steps were repeated; {len(found.compared)} files of "
        "weights and moments were compared"
    )
    if not found.differing:
        return f"{text}: no byte differs."
    return "\n".join(
        [f"{text}, {len(found.differing)} differ:", *map("  {}".format, found.differing)]
    )
