"""A model behind an endpoint on the puzzles of an evaluation, many episodes at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cast_ray.attempts import Attempt
from cast_ray.chat_rollout import ChatEpisode
from cast_ray.environment import Environment
from cast_ray.environments import make_environment
from cast_ray.jobs.endpoint import Endpoint, Patience, Prices
from cast_ray.jobs.endpoint_episodes import play_endpoint
from cast_ray.jobs.endpoint_player import EndpointPlayer
from cast_ray.jobs.evaluate import episode_groups, evaluation_sampling
from cast_ray.jobs.evaluated_model import EvaluatedModel
from cast_ray.jobs.judged_attempts import AttemptName, judged
from cast_ray.puzzles import Puzzle
from cast_ray.rollout import EpisodeSpec
from solver_actors.judge import Judge
from solver_actors.oracle import Oracle
from solver_actors.solvers import has_deadlocks

_ORACLE_BYTES = 2**30


def play_with_endpoint(
    model: EvaluatedModel,
    puzzles: Sequence[Puzzle],
    *,
    attempts: int,
    patience: Patience,
    prices: Prices,
    journals: Path,
    on_attempt: Callable[[int, int], None],
) -> list[Attempt]:
    """Return a model's attempts, ordered by puzzle and attempt.

    Args:
        model: whose name the endpoint of the environment knows.
        puzzles: of one game and tier.
        attempts: at each puzzle.
        patience: how many requests at a time, and how long.
        prices: what its tokens cost.
        journals: its answers are kept there, and none that is there is asked for again.
        on_attempt: is told how many attempts are done, of how many.

    Raises:
        ConfigError: the endpoint refuses the key, or knows no such model.
        EngineError: it refuses a request, or gives no answer again and again.
    """
    [config] = model.configs
    sampling = evaluation_sampling(config)
    endpoint = Endpoint.from_environment(model.name, os.environ)
    groups = episode_groups(
        puzzles, attempts=attempts, step=0, seed=config.seed, purpose="evaluation"
    )
    specs = [spec for group in groups for spec in group]
    oracle = Oracle(max_bytes=_ORACLE_BYTES)

    def environment_of(spec: EpisodeSpec) -> Environment:
        is_dead = None
        if config.rollout.deadlock_ends_episode and has_deadlocks(spec.puzzle.game):
            is_dead = oracle.solver(spec.puzzle.game, spec.puzzle.board).is_dead
        return make_environment(spec.puzzle, turn_budget=spec.turn_budget, is_dead=is_dead)

    async def play() -> list[ChatEpisode]:
        async with EndpointPlayer(
            endpoint,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            patience=patience,
        ) as player:
            return await play_endpoint(
                specs,
                player,
                make_environment=environment_of,
                sampling=sampling,
                journals=journals,
                concurrency=patience.concurrency,
                on_attempt=on_attempt,
            )

    judge = Judge(oracle)
    return [
        _attempt(model.label, spec, episode, judge, prices)
        for spec, episode in zip(specs, asyncio.run(play()), strict=True)
    ]


def _attempt(
    label: str, spec: EpisodeSpec, episode: ChatEpisode, judge: Judge, prices: Prices
) -> Attempt:
    price = prices.price_usd(
        prompt_tokens=episode.total_prompt_tokens, answer_tokens=episode.total_answer_tokens
    )
    name = AttemptName(
        model=label,
        run=0,
        puzzle=spec.puzzle,
        group=spec.group,
        attempt=spec.episode,
        seed=spec.seed,
        turn_budget=spec.turn_budget,
    )
    return judged(episode, judge, name, price_usd=price)
