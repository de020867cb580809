"""Many episodes played by one who takes messages, each with a journal of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cast_ray.answer_journal import AnswerJournal, JournaledPlayer
from cast_ray.chat_answers import ChatPlayer
from cast_ray.chat_rollout import ChatEpisode, play_messages
from cast_ray.environment import Environment
from cast_ray.files import refusals_named
from cast_ray.rollout import EpisodeSpec, Sampling

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
