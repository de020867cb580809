"""What the served agent makes of the stream that vLLM's OpenAI layer writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from cast_ray.errors import EngineError
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from serve.engine.overheard import Overheard
from serve.messages import EngineStats
from serve.service.model_server import ModelServer

DONE = "data: [DONE]\n\n"
REQUEST = GenerateRequest(
    token_ids=(1, 2), max_tokens=4, temperature=1.0, top_p=1.0, seed=3, stop_token_ids=(9,)
)


class ScriptedServer(ModelServer):
    """A model server whose engine writes what the test says, when it says so."""

    def __init__(self) -> None:
        self._stats = EngineStats.of_new_engine()
        self._progress_at = float("-inf")
        self._model, self._tokenizer = "tiny", "digest"
        with Overheard() as self._heard:
            pass
        self.written: asyncio.Queue[list[Any]] = asyncio.Queue()

    def __del__(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Replace Ray's coroutine, which would never be awaited."""

    async def completions(self, request: Any, raw_request_info: Any = None) -> Any:
        assert request.stream
        return self._lists()

    async def _lists(self) -> AsyncIterator[list[Any]]:
        pieces: list[Any] = [None]
        while pieces[-1] != DONE and not hasattr(pieces[-1], "error"):
            pieces = await self.written.get()
            yield pieces

    async def outcome(self) -> Completion | Refusal:
        ((_, outcome),) = [each async for batch in self.generate([REQUEST]) for each in batch]
        return outcome

    async def seconds_silent(self) -> float:
        return (await self.stats()).seconds_since_progress


def piece(token_ids: list[int], logprobs: list[float], finish_reason: str | None = None) -> str:
    choice = {
        "token_ids": token_ids,
        "logprobs": {"token_logprobs": logprobs},
        "finish_reason": finish_reason,
    }
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def test_a_long_answer_is_progress_while_it_is_written() -> None:
    async def play() -> None:
        server = ScriptedServer()
        answer = asyncio.ensure_future(server.outcome())
        await asyncio.sleep(0)
        assert await server.seconds_silent() == float("inf")

        await server.written.put([piece([5], [-0.5])])
        async with asyncio.timeout(10):
            while await server.seconds_silent() == float("inf"):
                await asyncio.sleep(0)
        assert not answer.done()
        assert (await server.stats()).num_running == 1

        await server.written.put([piece([6, 7], [-1.0, -2.0])])
        await server.written.put([piece([9], [-0.25], "stop"), DONE])
        assert await answer == Completion(
            token_ids=(5, 6, 7, 9),
            rollout_logprobs=(-0.5, -1.0, -2.0, -0.25),
            finish_reason="stop",
            weight_versions=(0, 0, 0, 0),
        )
        stats = await server.stats()
        assert (stats.num_running, stats.num_requests, stats.num_generated_tokens) == (0, 1, 4)

    asyncio.run(play())


@pytest.mark.parametrize(
    "pieces",
    [
        [SimpleNamespace(error=SimpleNamespace(code=500, message="no memory"))],
        [
            piece([5], [-0.5]),
            # vLLM calls any error within a stream a bad request.
            f"data: {json.dumps({'error': {'code': 400, 'message': 'no memory'}})}\n\n",
            DONE,
        ],
    ],
)
def test_a_failed_engine_is_an_error_and_not_a_refusal(pieces: list[Any]) -> None:
    async def play() -> None:
        server = ScriptedServer()
        await server.written.put(pieces)
        with pytest.raises(EngineError, match="the vLLM engine failed: no memory"):
            await server.outcome()
        assert (await server.stats()).num_running == 0

    asyncio.run(play())


def test_a_request_that_the_engine_does_not_take_is_refused() -> None:
    async def play() -> None:
        server = ScriptedServer()
        await server.written.put(
            [SimpleNamespace(error=SimpleNamespace(code=400, message="too many tokens"))]
        )
        assert await server.outcome() == Refusal(reason="too many tokens")
        assert (await server.stats()).num_refused == 1

    asyncio.run(play())
