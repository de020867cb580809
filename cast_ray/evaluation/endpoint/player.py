"""An OpenAI-compatible endpoint as a player.

The client's own repetitions are off: they neither repeat an answer that cannot be read nor wait
longer than two minutes, and each request waits for itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import openai

from cast_ray.errors import EngineError
from cast_ray.evaluation.endpoint.config import Endpoint, Patience
from cast_ray.evaluation.endpoint.responses import (
    Dialect,
    MalformedReply,
    Reply,
    RetryableError,
    read_answer,
    setback_of,
)
from cast_ray.rollout.chat_episode import ChatAnswer, Message
from cast_ray.seeds import derive_seed

_log = logging.getLogger(__name__)
_JITTER = 0.25
"""A wait is longer by up to this share of it."""
_NO_TEXT = "(empty answer)"
"""Sent in place of an answer without text: some endpoints refuse the whole conversation for it."""


@dataclass(slots=True)
class _Trouble:
    """What went wrong so far with one answer."""

    rng: random.Random
    num_faults: int = 0
    num_retries: int = 0
    began: float | None = None
    """By the event loop's clock."""


class EndpointPlayer:
    """A ``ChatPlayer`` behind an endpoint. Belongs to one event loop; an async context manager."""

    def __init__(
        self, endpoint: Endpoint, *, temperature: float, top_p: float, patience: Patience
    ) -> None:
        """Prepare a player; nothing is asked yet.

        Args:
            endpoint: whom to ask.
            temperature, top_p: how it samples; closed models 1 and 1 (paper, tab:eval_closed).
            patience: how many requests at a time, and how long.
        """
        self._endpoint = endpoint
        self._temperature = temperature
        self._top_p = top_p
        self._patience = patience
        self._dialect = Dialect()
        self._slots = asyncio.Semaphore(patience.concurrency)
        self._resume_at = 0.0
        """Nobody asks before, by the event loop's clock."""
        self._has_said_uncounted = False
        self._client = openai.AsyncOpenAI(
            api_key=endpoint.api_key,
            base_url=endpoint.base_url,
            timeout=patience.timeout_s,
            max_retries=0,
        )

    async def __aenter__(self) -> EndpointPlayer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()

    @property
    def settings(self) -> Mapping[str, str | float]:
        """See ``ChatPlayer``. The address is not in it: it may be another way to the same model."""
        return {
            "model": self._endpoint.model,
            "temperature": self._temperature,
            "top_p": self._top_p,
        }

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        """See ``ChatPlayer``.

        Raises:
            ConfigError: the endpoint refuses the key, or does not know the model.
            EngineError: it refuses the request, or gives no answer again and again.
        """
        started = time.monotonic()
        trouble = _Trouble(random.Random(derive_seed(seed, "wait")))
        while True:
            said = await self._try(messages, trouble, max_tokens=max_tokens, seed=seed)
            if isinstance(said, Reply):
                break
            trouble.num_retries += 1
            if said is not None:
                await self._wait_out(said, trouble)
        if said.prompt_tokens is None or said.answer_tokens is None:
            self._say_uncounted()
        return ChatAnswer(
            text=said.text,
            finish_reason=said.finish_reason,
            prompt_tokens=said.prompt_tokens,
            answer_tokens=said.answer_tokens,
            num_retries=trouble.num_retries,
            seconds=time.monotonic() - started,
        )

    async def _try(
        self, messages: Sequence[Message], trouble: _Trouble, *, max_tokens: int, seed: int
    ) -> Reply | RetryableError | None:
        """Ask once; None = at once again, in other words."""
        async with self._slots:
            await self._pause()
            dialect = self._dialect
            try:
                async with asyncio.timeout(self._patience.timeout_s):
                    return await self._ask(messages, dialect, max_tokens=max_tokens, seed=seed)
            except openai.APIStatusError as error:
                if self._has_adapted(error, dialect):
                    return None
                return setback_of(error, self._endpoint, now=time.time())
            except (openai.APIConnectionError, MalformedReply, TimeoutError) as error:
                return setback_of(error, self._endpoint, now=time.time())

    async def _ask(
        self, messages: Sequence[Message], dialect: Dialect, *, max_tokens: int, seed: int
    ) -> Reply:
        # Any: the client's types want each parameter by name.
        conversation: Any = [
            {
                "role": message.role,
                "content": message.content if message.content.strip() else _NO_TEXT,
            }
            for message in messages
        ]
        response = await self._client.chat.completions.with_raw_response.create(
            model=self._endpoint.model,
            messages=conversation,
            **dialect.parameters(
                temperature=self._temperature,
                top_p=self._top_p,
                max_tokens=max_tokens,
                seed=seed,
            ),
        )
        return read_answer(response.content)

    def _has_adapted(self, error: openai.APIStatusError, dialect: Dialect) -> bool:
        """Return whether asking in other words may mend a refusal, and note the words."""
        better = dialect.after_refusal(error, temperature=self._temperature, top_p=self._top_p)
        if better is None:
            return False
        if self._dialect == dialect:  # else another request has met the same refusal
            self._dialect = better
            left_out = ", ".join(sorted(better.left_out)) or "nothing"
            _log.warning(
                "the endpoint refused a parameter: from now on %s bounds an answer, and it is not "
                "told: %s",
                better.limit,
                left_out,
            )
        return True

    async def _pause(self) -> None:
        """Wait while the endpoint wants to be left alone."""
        loop = asyncio.get_running_loop()
        while (left_s := self._resume_at - loop.time()) > 0:
            await asyncio.sleep(left_s)

    async def _wait_out(self, setback: RetryableError, trouble: _Trouble) -> None:
        """Wait before an answer is asked for again; all wait where the endpoint asks for it.

        Raises:
            EngineError: it was asked often or long enough.
        """
        now = asyncio.get_running_loop().time()
        trouble.began = now if trouble.began is None else trouble.began
        trouble.num_faults += not setback.is_rate_limit
        wait_s = (setback.wait_s or self._own_wait_s(trouble)) * (
            1 + _JITTER * trouble.rng.random()
        )
        if trouble.num_faults >= self._patience.max_faults:
            raise self._given_up(f"{trouble.num_faults} times", setback)
        if now + wait_s - trouble.began > self._patience.longest_trouble_s:
            raise self._given_up(f"within {self._patience.longest_trouble_s:g} s", setback)
        if setback.is_rate_limit or setback.wait_s:
            _log.info("all requests wait %.1f s (%s)", wait_s, setback.reason)
            self._resume_at = max(self._resume_at, now + wait_s)
            await self._pause()
        else:
            _log.info("a request waits %.1f s (%s)", wait_s, setback.reason)
            await asyncio.sleep(wait_s)

    def _own_wait_s(self, trouble: _Trouble) -> float:
        """Return how long to wait where the endpoint does not say."""
        doubled = self._patience.first_wait_s * 2.0 ** min(trouble.num_retries - 1, 30)
        return min(doubled, self._patience.longest_wait_s)

    def _given_up(self, how: str, setback: RetryableError) -> EngineError:
        return EngineError(
            f"the endpoint at {self._endpoint.host} gave no answer {how} (last: {setback.reason}); "
            "start again later: what it has answered is not asked for again"
        )

    def _say_uncounted(self) -> None:
        if not self._has_said_uncounted:
            self._has_said_uncounted = True
            _log.warning(
                "the endpoint does not count tokens: they and their price stay unknown, and the "
                "token budget of an episode cannot be held"
            )
