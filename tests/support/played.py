"""A step of real episodes by the scripted policy, scored by the real oracle."""

from __future__ import annotations

import pyarrow as pa

from cast_ray.config.train import TrainConfig
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.rollout.specs import conversation_limit
from cast_ray.rollout.trajectory import to_rollout_batch
from cast_ray.seeds import derive_seed
from solver_actors.oracle import Oracle
from solver_actors.teacher import teacher_of
from tests.support.scripted import ScriptedPolicy, mixed_play, play


def scored_table(
    tokenizer: ChatTokenizer,
    boards: list[Puzzle],
    config: TrainConfig,
    *,
    step: int,
    attempts: int,
) -> pa.Table:
    """Play every board a few times with the scripted policy and score it."""
    policy = ScriptedPolicy(tokenizer, mixed_play(tokenizer), version=step)
    trajectories = [
        play(
            EpisodeSpec(
                step=step,
                group=group,
                episode=episode,
                attempt=0,
                puzzle=board,
                turn_budget=get_game("sokoban").tiers["mini"].turn_budget,
                seed=derive_seed(0, "rollout", step, group, episode),
            ),
            policy,
            tokenizer,
            response_tokens=config.rollout.response_tokens,
            conversation_tokens=conversation_limit(config),
            max_answer_tokens=config.rollout.max_answer_tokens,
            truncated=config.rollout.truncated,
        )
        for group, board in enumerate(boards)
        for episode in range(attempts)
    ]
    rollout = to_rollout_batch(trajectories)
    oracle = Oracle(max_bytes=2**20, teacher=teacher_of(config))
    return pa.Table.from_batches([oracle.score(rollout)])
