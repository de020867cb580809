"""Which weights wrote which token of a request that is in flight over a weight update.

Answers come whole, at their end, so the engine's process does not see the tokens one by one. What
it can see is how many there are while generation is paused, and that is all that is needed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from vllm import envs
from vllm.v1.engine.async_llm import AsyncLLM


@dataclass(slots=True)
class TokenVersions:
    """The versions of one answer's tokens while it is being written."""

    first: int
    """What the engine computed with when the request was handed to vLLM."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """(tokens written before the change, version after it), in order of time."""

    def of_tokens(self, num_tokens: int) -> tuple[int, ...]:
        """Return ``[num_tokens]`` versions."""
        versions: list[int] = []
        version = self.first
        for num_before, after in self.changes:
            versions += [version] * (num_before - len(versions))
            version = after
        return (*versions, *[version] * (num_tokens - len(versions)))


async def tokens_written(llm: AsyncLLM) -> dict[str, int]:
    """Return how many tokens each unfinished request has, by the id that it was handed over with.

    Only while generation is paused, and exact then. The core answers the pause on the socket that
    brings the tokens, after the last of them, and the reader of that socket puts tokens into
    ``outputs_queue`` before it reads on; so all of them are in that queue or taken from it. Who
    takes them works off a step's answers in chunks, without a break within one and giving way to
    others once between two. So when the queue is empty, as many turns of the event loop as a step
    has chunks are enough. A request that is missing here has ended.
    """
    while not llm.engine_core.outputs_queue.empty():
        await asyncio.sleep(0)
    for _ in range(llm.scheduler_config.max_num_seqs // envs.VLLM_V1_OUTPUT_PROC_CHUNK_SIZE + 1):
        await asyncio.sleep(0)
    states = llm.output_processor.request_states.values()
    return {
        state.external_req_id: state.detokenizer.num_output_tokens()
        for state in states
        if state.detokenizer is not None
    }
