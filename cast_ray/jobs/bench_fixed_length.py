"""Answers of a stated length, so that two engines can be given the same work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cast_ray.generation import NO_STOP_TOKEN, Completion, GenerateRequest, Lane
from serve.client import PolicyClient
from serve.connect import connect_policy


class FixedLength:
    """A ``Generate`` whose answers all have ``max_tokens``, the last one the end of the turn."""

    def __init__(self, client: PolicyClient) -> None:
        self._client = client

    async def __call__(self, request: GenerateRequest, lane: Lane) -> Completion:
        """Ask for an answer that nothing ends early, and end it."""
        unstopped = replace(request, stop_token_id=NO_STOP_TOKEN)
        answer = await self._client(unstopped, lane)
        return replace(
            answer,
            token_ids=(*answer.token_ids[:-1], request.stop_token_id),
            finish_reason="stop",
        )

    def counters(self) -> Mapping[str, float]:
        """Forward to the client."""
        return self._client.counters()


def connect_fixed_length(*arguments: Any, **settings: Any) -> FixedLength:
    """Return ``FixedLength`` around ``connect_policy``, whose arguments these are."""
    return FixedLength(connect_policy(*arguments, **settings))
