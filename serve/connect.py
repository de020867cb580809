"""From the names of a run's engines to a function that generates, inside any Ray process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ray import serve as ray_serve

from cast_ray.generation import Completion, GenerateRequest
from serve.client import PolicyClient

_WINDOW_S = 0.002


def connect_policy(
    app_names: Sequence[str], *, timeout_s: float
) -> Callable[[GenerateRequest, int], Awaitable[Completion]]:
    """Return ``generate(request, lane)``; requests of one lane go to the same engine.

    Must be called in the event loop that will use it.
    """
    handles = [ray_serve.get_app_handle(name) for name in app_names]
    client = PolicyClient(handles, timeout_s=timeout_s, window_s=_WINDOW_S)

    async def generate(request: GenerateRequest, lane: int) -> Completion:
        return await client.generate(request, episode_id=lane)

    return generate
