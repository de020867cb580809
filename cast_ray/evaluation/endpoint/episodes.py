"""Many episodes played by one who takes messages, each with a journal of its answers.

A model behind an endpoint on the puzzles of an evaluation, many episodes at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cast_ray.envs.environment import Environment
from cast_ray.envs.registry import make_environment
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.build_attempts import AttemptName, judged
from cast_ray.evaluation.endpoint.config import Endpoint, Patience, Prices
from cast_ray.evaluation.endpoint.journal import AnswerJournal, JournaledPlayer
from cast_ray.evaluation.endpoint.player import EndpointPlayer
from cast_ray.evaluation.models import EvaluatedModel
from cast_ray.files import refusals_named
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat_episode import ChatEpisode, ChatPlayer, play_messages
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.specs import episode_groups, evaluation_sampling
from solver_actors.oracle import Oracle
from solver_actors.registry import has_deadlocks
from solver_actors.scoring import Scorer

MakeEnvironment = Callable[[EpisodeSpec], Environment]
OnAttempt = Callable[[int, int], None]


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
    """Play episodes, some at a time, and return their records in the order of ``specs``.

    The first error ends all. A second call with the same ``journals`` plays what was answered from
    there, and asks only for the rest.

    Args:
        specs: what to play; (group, episode) names each.
        player: answers.
        make_environment: returns an episode's environment; called on a thread, one at a time.
        sampling: the budgets.
        journals: directory of the answers, made if need be; one for each player and set of specs.
        concurrency: episodes under way at a time, >= 1.
        on_attempt: is told ``(done, total)`` after each episode.

    Raises:
        CastRayError: what ``player``, ``make_environment`` or a journal raises.
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

    # One thread: solvers are not made for more, and the loop must not wait for their tables.
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
    with AnswerJournal(journals / f"{spec.group:05d}-{spec.episode:03d}.jsonl") as journal:
        episode = await play_messages(
            environment,
            JournaledPlayer(player, journal),
            puzzle_id=spec.puzzle.puzzle_id,
            sampling=sampling,
            seed=spec.seed,
        )
        journal.check_finished()
    return episode


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

    scorer = Scorer(oracle)
    return [
        _attempt(model.label, spec, episode, scorer, prices)
        for spec, episode in zip(specs, asyncio.run(play()), strict=True)
    ]


def _attempt(
    label: str, spec: EpisodeSpec, episode: ChatEpisode, scorer: Scorer, prices: Prices
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
    return judged(episode, scorer, name, price_usd=price)
