"""Many requests answered in one call, each as soon as it is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal


async def answers_as_done(
    requests: Sequence[GenerateRequest],
    answer: Callable[[GenerateRequest], Awaitable[Completion | Refusal]],
) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
    """Answer requests concurrently; the first error is raised and cancels the others.

    Yields:
        Lists of (index in ``requests``, completion or refusal): all that are done by then.
    """
    # A queue and not asyncio.wait, which scans all tasks whenever one ends.
    ended: asyncio.Queue[asyncio.Future[Completion | Refusal]] = asyncio.Queue()
    indices: dict[asyncio.Future[Completion | Refusal], int] = {}
    for index, request in enumerate(requests):
        task = asyncio.ensure_future(answer(request))
        task.add_done_callback(ended.put_nowait)
        indices[task] = index
    try:
        while indices:
            done = [await ended.get()]
            while not ended.empty():
                done.append(ended.get_nowait())
            yield [(indices.pop(task), task.result()) for task in done]
    finally:
        for task in indices:
            task.cancel()
