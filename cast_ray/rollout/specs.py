"""Episodes to play and their sampling, for training, validation and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from cast_ray.config.train import TrainConfig
from cast_ray.envs.registry import tier_of
from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import ModelError
from cast_ray.files import read_json
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.seeds import derive_seed
from cast_ray.statistics import Success, success_rate


def episode_groups(
    puzzles: Sequence[Puzzle],
    *,
    attempts: int,
    step: int,
    seed: int,
    purpose: str,
    first_group: int = 0,
    min_weight_version: int = 0,
) -> list[list[EpisodeSpec]]:
    """Return one group per puzzle, with one episode per attempt.

    Args:
        puzzles: one per group.
        attempts: episodes per group.
        step: of the run.
        seed: of the run. An episode's seed follows from it, purpose, step, group and episode.
        purpose: what the episodes are for.
        first_group: number of the first group; the others follow.
        min_weight_version: no token may be written by older weights.
    """
    return [
        [
            EpisodeSpec(
                step=step,
                group=group,
                episode=episode,
                puzzle=puzzle,
                turn_budget=tier_of(puzzle.game, puzzle.tier).turn_budget,
                seed=derive_seed(seed, purpose, step, group, episode),
                min_weight_version=min_weight_version,
            )
            for episode in range(attempts)
        ]
        for group, puzzle in enumerate(puzzles, start=first_group)
    ]


def evaluation_sampling(config: TrainConfig) -> Sampling:
    """Return how answers are sampled in validation and evaluation."""
    return _sampling(config, config.evaluation.temperature, config.evaluation.top_p)


def training_sampling(config: TrainConfig) -> Sampling:
    """Return how answers are sampled in training; other values would falsify the ratio."""
    return _sampling(config, 1.0, 1.0)


def conversation_limit(config: TrainConfig) -> int:
    """Return the most tokens of a conversation: both budgets, at most ``engine.max_model_len``."""
    both = config.rollout.prompt_tokens + config.rollout.response_tokens
    return min(both, config.engine.max_model_len or both)


def model_limit(model_dir: Path) -> int | None:
    """Return the most tokens that a model holds, by its config.json; None = it does not say.

    Raises:
        ModelError: the file is missing or damaged.
    """
    path = model_dir / "config.json"
    try:
        values = read_json(path)
        values = values.get("text_config") or values  # of a model that also reads images
        # The first is Command-R's, whose second is far less than it was made for.
        limit = values.get("model_max_length") or values.get("max_position_embeddings")
        return None if limit is None else int(limit)
    except (OSError, ValueError, TypeError, AttributeError):
        raise ModelError(f"{path} cannot be read: restore the model directory") from None


def with_model_limit(config: TrainConfig, model_dir: Path) -> TrainConfig:
    """Return the configuration with the number that ``engine.max_model_len=0`` means for a model.

    Raises:
        ModelError: as for ``model_limit``.
    """
    both = conversation_limit(config)
    limit = config.engine.max_model_len or min(both, model_limit(model_dir) or both)
    return replace(config, engine=replace(config.engine, max_model_len=limit))


def success_of(table: pa.Table, *, seed: int) -> Success:
    """Return the success rate of a table of trajectories, with its interval."""
    solved = [float(reason == SOLVED) for reason in table["end_reason"].to_pylist()]
    return success_rate(table["puzzle_id"].to_pylist(), solved, seed=seed)


def _sampling(config: TrainConfig, temperature: float, top_p: float) -> Sampling:
    rollout = config.rollout
    return Sampling(
        temperature=temperature,
        top_p=top_p,
        max_answer_tokens=rollout.max_answer_tokens,
        prompt_tokens=rollout.prompt_tokens,
        response_tokens=rollout.response_tokens,
        conversation_tokens=conversation_limit(config),
        truncated=rollout.truncated,
    )
