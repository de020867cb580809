"""vLLM's AsyncLLM alone, which ``cast-ray bench rollout`` compares the complete rollout path with.

It replays recorded conversations turn by turn, without an environment, and with the engine
arguments and sampling parameters of ``PolicyEngine``: every turn has the recorded number of prompt
and answer tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vllm.inputs.engine import tokens_input
from vllm.v1.engine.async_llm import AsyncLLM

from cast_ray.rollout.generate import GenerateRequest
from serve.engine.engine import sampling_params
from serve.engine.vllm_start import engine_arguments
from serve.messages import EngineOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded episode."""

    first: GenerateRequest
    """Its first turn; the others differ in prompt and seed."""
    seeds: tuple[int, ...]
    """``[T]`` of all turns."""
    observations: tuple[tuple[int, ...], ...]
    """``[T - 1]`` tokens after the answers."""


class BareEngine:
    """An AsyncLLM in this process."""

    def __init__(self, options: EngineOptions) -> None:
        """Start vLLM's processes."""
        self._llm = AsyncLLM.from_engine_args(engine_arguments(options))
        self._num_asked = 0

    async def replay(self, talks: Sequence[Conversation], *, num_concurrent: int) -> float:
        """Return the seconds for these conversations, ``num_concurrent`` at a time."""
        left = iter(talks)
        started = time.perf_counter()
        await asyncio.gather(*(self._replay_next(left) for _ in range(num_concurrent)))
        return time.perf_counter() - started

    async def _replay_next(self, left: Iterator[Conversation]) -> None:
        for talk in left:
            token_ids = list(talk.first.token_ids)
            for seed, observation in zip(talk.seeds, (*talk.observations, ()), strict=True):
                params = sampling_params(replace(talk.first, seed=seed))
                self._num_asked += 1
                stream = self._llm.generate(
                    tokens_input(token_ids.copy()), params, str(self._num_asked)
                )
                async for output in stream:
                    if output.finished:
                        token_ids += output.outputs[0].token_ids
                token_ids += observation
