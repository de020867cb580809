"""A model behind an endpoint on the puzzles of an evaluation, many episodes at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cast_ray.envs.environment import Environment
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.build_attempts import scored_attempt
from cast_ray.evaluation.endpoint.config import Endpoint
from cast_ray.evaluation.endpoint.journal import AnswerJournal, JournaledPlayer
from cast_ray.evaluation.endpoint.player import EndpointPlayer
from cast_ray.evaluation.models import EvaluatedModel
from cast_ray.evaluation.tasks import environment_of
from cast_ray.files import refusals_named
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat_episode import ChatEpisode, ChatPlayer, play_messages
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.specs import episode_groups, evaluation_sampling
from solver_actors.oracle import Oracle
from solver_actors.scoring import Scorer

if TYPE_CHECKING:
    from cast_ray.evaluation.evaluate import Evaluation

MakeEnvironment = Callable[[EpisodeSpec], Environment]
OnAttempt = Callable[[int, int], None]
_ORACLE_BYTES = 2**30


async def play_endpoint(
    specs: Sequence[EpisodeSpec],
    player: ChatPlayer,
    *,
    make_environment: MakeEnvironment,
    sampling: Sampling,
    journals: Path,
    concurrency: int,
    on_attempt: OnAttempt,
) -> list[ChatEpisode]:
    """Play episodes concurrently and return their records in the order of ``specs``.

    The first error ends all of them. A second call with the same ``journals`` replays the answers
    that they hold, and requests only the missing ones.

    Args:
        specs: what to play; (group, episode) names each.
        player: gives the answers.
        make_environment: returns an episode's environment; called in one thread.
        sampling: the token budgets.
        journals: directory of the answers, created if missing; one per player and set of specs.
        concurrency: most episodes at a time, >= 1.
        on_attempt: called with ``(done, total)`` after each episode.

    Raises:
        CastRayError: from ``player``, ``make_environment`` or a journal.
    """
    with refusals_named(journals):
        journals.mkdir(parents=True, exist_ok=True)
    played: dict[int, ChatEpisode] = {}
    waiting = iter(enumerate(specs))

    async def work(maker: ThreadPoolExecutor) -> None:
        for number, spec in waiting:
            loop = asyncio.get_running_loop()
            environment = await loop.run_in_executor(maker, make_environment, spec)
            try:
                played[number] = await _play(spec, environment, player, sampling, journals)
            finally:
                environment.close()
            on_attempt(len(played), len(specs))

    # One thread: solvers are not thread-safe, and the event loop must not wait for their tables.
    with ThreadPoolExecutor(1) as maker:
        workers = [asyncio.create_task(work(maker)) for _ in range(min(concurrency, len(specs)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return [played[number] for number in range(len(specs))]


async def _play(
    spec: EpisodeSpec,
    environment: Environment,
    player: ChatPlayer,
    sampling: Sampling,
    journals: Path,
) -> ChatEpisode:
    journal = AnswerJournal(journals / f"{spec.group:05d}-{spec.episode:03d}.jsonl")
    episode = await play_messages(
        environment,
        JournaledPlayer(player, journal),
        puzzle_id=spec.puzzle.puzzle_id,
        sampling=sampling,
        seed=spec.seed,
    )
    journal.check_finished()
    return episode


def play_with_endpoint(
    plan: Evaluation,
    model: EvaluatedModel,
    puzzles: Sequence[Puzzle],
    *,
    journals: Path,
    on_attempt: OnAttempt,
) -> list[Attempt]:
    """Return a model's attempts, ordered by puzzle and attempt.

    Args:
        plan: of the evaluation.
        model: its name is sent to the endpoint that the environment variables name.
        puzzles: of one game and tier.
        journals: directory of its answers; what is there is not requested again.
        on_attempt: called with ``(done, total)`` after each attempt.

    Raises:
        ConfigError: the endpoint rejects the key or the model's name.
        EngineError: it cannot be reached, rejects a request, or too much fails in a row.
    """
    [config] = model.configs
    sampling, patience = evaluation_sampling(config), plan.patience
    endpoint = Endpoint.from_environment(model.name, os.environ)
    endpoint = replace(endpoint, extra_body=plan.extra_body)
    groups = episode_groups(
        puzzles, attempts=plan.attempts, step=0, seed=config.seed, purpose="evaluation"
    )
    specs = [spec for group in groups for spec in group]
    oracle = Oracle(max_bytes=_ORACLE_BYTES)

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
                make_environment=partial(
                    environment_of,
                    oracle=oracle,
                    deadlock_ends_episode=config.rollout.deadlock_ends_episode,
                ),
                sampling=sampling,
                journals=journals,
                concurrency=patience.concurrency,
                on_attempt=on_attempt,
            )

    scorer = Scorer(oracle)
    return [
        scored_attempt(
            episode,
            spec,
            scorer,
            model=model.label,
            price_usd=plan.prices.price_usd(
                prompt_tokens=episode.total_prompt_tokens, answer_tokens=episode.total_answer_tokens
            ),
        )
        for spec, episode in zip(specs, asyncio.run(play()), strict=True)
    ]
