"""A small evaluation of an endpoint, in a process that can be killed.

``python -m tests.support.endpoint_play DIRECTORY`` starts it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cast_ray.envs.environment import Environment
from cast_ray.envs.registry import make_environment as environment_for
from cast_ray.evaluation.endpoint.config import Endpoint, Patience
from cast_ray.evaluation.endpoint.episodes import play_endpoint
from cast_ray.evaluation.endpoint.player import EndpointPlayer
from cast_ray.games.puzzles import Puzzle, make_puzzle
from cast_ray.games.sokoban import Sokoban
from cast_ray.rollout.chat_episode import ChatEpisode
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.seeds import derive_seed
from tests.support.rooms import random_room

MODEL = "scripted-1"
TURN_BUDGET = 8
NUM_ATTEMPTS = 2
SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    max_answer_tokens=16384,
    prompt_tokens=2048,
    response_tokens=16384,
    conversation_tokens=20000,
    truncated="skip",
)
QUICK = Patience(
    concurrency=4,
    timeout_s=5.0,
    max_faults=4,
    first_wait_s=0.01,
    longest_wait_s=0.05,
    longest_trouble_s=5.0,
)
_NUM_ROOMS = 40


@cache
def rooms() -> list[Puzzle]:
    """Return rooms, some of which nobody can solve, or not in time."""
    game = Sokoban()
    texts = [random_room(seed, num_boxes=1, max_floor=20) for seed in range(_NUM_ROOMS)]
    undecided = [text for text in texts if "X" in text]
    return [
        make_puzzle(game, game.decode(text), tier="mini", cost=float("nan"), seed=seed, measures={})
        for seed, text in enumerate(undecided)
    ]


def specs(num_rooms: int, *, attempts: int = NUM_ATTEMPTS) -> list[EpisodeSpec]:
    """Return attempts at the first rooms."""
    return [
        EpisodeSpec(
            step=0,
            group=group,
            episode=episode,
            attempt=0,
            puzzle=puzzle,
            turn_budget=TURN_BUDGET,
            seed=derive_seed(0, "evaluation", group, episode),
        )
        for group, puzzle in enumerate(rooms()[:num_rooms])
        for episode in range(attempts)
    ]


def environment_of(spec: EpisodeSpec) -> Environment:
    """Return an episode that goes on where nothing can be won any more."""
    return environment_for(spec.puzzle, turn_budget=spec.turn_budget)


def played(
    journals: Path,
    environ: Mapping[str, str],
    *,
    num_rooms: int,
    attempts: int = NUM_ATTEMPTS,
    patience: Patience = QUICK,
    sampling: Sampling = SAMPLING,
    extra_body: Mapping[str, Any] | None = None,
    on_attempt: Callable[[int, int], None] = lambda done, total: None,
    make_environment: Callable[[EpisodeSpec], Environment] = environment_of,
) -> list[ChatEpisode]:
    """Play and return the records."""

    async def run() -> list[ChatEpisode]:
        endpoint = Endpoint.from_environment(MODEL, environ)
        endpoint = replace(endpoint, extra_body=extra_body or {})
        async with EndpointPlayer(
            endpoint,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            patience=patience,
        ) as player:
            return await play_endpoint(
                specs(num_rooms, attempts=attempts),
                player,
                make_environment=make_environment,
                sampling=sampling,
                journals=journals,
                concurrency=patience.concurrency,
                on_attempt=on_attempt,
            )

    return asyncio.run(run())


if __name__ == "__main__":
    played(Path(sys.argv[1]), os.environ, num_rooms=int(sys.argv[2]))
