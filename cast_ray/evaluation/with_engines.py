"""Trained models on the puzzles of an evaluation, with our engines and env runners on Ray.

Every group is on disk before it counts, so a second start plays only what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from cast_ray.cluster.placement import reserved_cpus, wait_for_places
from cast_ray.cluster.session import ray_session
from cast_ray.config.train import TrainConfig
from cast_ray.evaluation.models import model_directory, pieces_of
from cast_ray.evaluation.tasks import GameTier
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.rollout.specs import evaluation_sampling
from cast_ray.rollout.trajectory import SCORED_SCHEMA
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import read_batch
from cast_ray.runs.uris import PathOrUri
from cast_ray.training.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The episodes of one game and tier, and the folder of their trajectories."""

    which: GameTier
    groups: Sequence[list[EpisodeSpec]]
    folder: Path

    def file(self, group: list[EpisodeSpec]) -> Path:
        """Return the file of a played group."""
        return self.folder / f"group-{group[0].group:05d}.parquet"

    @property
    def is_played(self) -> bool:
        """Whether all groups are played."""
        return all(self.file(group).is_file() for group in self.groups)

    def stored(self) -> pa.Table:
        """Return the trajectories of a played tier, by group and episode."""
        tables = [read_batch(self.file(group), SCORED_SCHEMA) for group in self.groups]
        return pa.concat_tables(tables)


def play_with_engines(
    model: PathOrUri,
    plays: Sequence[Play],
    config: TrainConfig,
    *,
    label: str,
    progress: TrainProgress,
) -> Mapping[GameTier, pa.Table]:
    """Return the trajectories of all plays; engines start only if something is missing.

    Args:
        model: a run or model directory.
        plays: what to play.
        config: engine, sampling and budgets.
        label: the model's name for the terminal.
        progress: shown to the user.

    Raises:
        EngineError, RemoteTimeout, ActorLostError: playing failed.
    """
    left = [play for play in plays if not play.is_played]
    if left:
        with ray_session(num_cpus=reserved_cpus(config)):
            wait_for_places(config, say=progress.phase, with_learner=False)
            progress.phase(f"{label}: starting the engine")
            run_id = f"eval-{datetime.now(UTC).strftime('%H%M%S%f')}"
            model_dir, pieces = model_directory(model), pieces_of(model, config)
            workers = Workers.start(config, run_id=run_id, model_dir=model_dir, pieces=pieces)
            try:
                for play in left:
                    progress.phase(f"{label}: playing {play.which}")
                    _play(workers, play, config, progress)
            finally:
                workers.close()
    return {play.which: play.stored() for play in plays}


def _play(workers: Workers, play: Play, config: TrainConfig, progress: TrainProgress) -> None:
    workers.collector.play(
        play.groups,
        evaluation_sampling(config),
        timeout_s=config.rollout.timeout_s,
        on_group=progress.rollout,
        log_to=play.file,
    )
