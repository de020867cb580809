"""A model behind an OpenAI-compatible endpoint as a ``ChatPlayer``, with retries.

The client's own retries are off: they ignore answers that cannot be read, wait two minutes at
most, and do not hold back other requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import openai

from cast_ray.errors import EngineError, EnvironmentSetupError
from cast_ray.evaluation.endpoint.config import Endpoint, Patience
from cast_ray.evaluation.endpoint.responses import (
    Dialect,
    RetryableError,
    UnusableError,
    connection_error,
    read_answer,
    read_json,
    reported_error,
    status_error,
)
from cast_ray.rollout.chat_episode import ChatAnswer, Message, NoAnswerError
from cast_ray.seeds import derive_seed

_log = logging.getLogger(__name__)
_JITTER = 0.25
"""Most that a random part adds to a wait, as a share of it."""
_NO_TEXT = "(empty answer)"
"""Sent instead of an empty answer, for which some endpoints refuse the conversation."""


@dataclass(slots=True)
class _Failures:
    """The failed requests of one answer so far."""

    rng: random.Random
    num_faults: int = 0
    num_unusable: int = 0
    num_retries: int = 0
    began: float | None = None
    """By the event loop's clock."""
    started: float = field(default_factory=time.monotonic)


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

        Raises:
            EnvironmentSetupError: the environment names a proxy of a kind that cannot be used.
        """
        self._endpoint = endpoint
        self._temperature = temperature
        self._top_p = top_p
        self._patience = patience
        self._dialect = Dialect()
        self._slots = asyncio.Semaphore(patience.concurrency)
        self._resume_at = 0.0
        """No request is sent earlier, by the event loop's clock."""
        self._is_reached = False
        """Whether it has responded."""
        self._num_unanswered = 0
        """Attempts that ended without an answer since the latest answer."""
        self._has_warned_uncounted = False
        try:
            self._client = openai.AsyncOpenAI(
                api_key=endpoint.api_key,
                base_url=endpoint.base_url,
                timeout=patience.timeout_s,
                max_retries=0,
            )
        except (ImportError, ValueError) as error:  # httpx's, of a proxy in the environment
            raise EnvironmentSetupError(
                f"a proxy in the environment (http_proxy, https_proxy, all_proxy) cannot be used: "
                f"{error}; use http://, https://, or socks5:// after pip install socksio"
            ) from None

    async def __aenter__(self) -> EndpointPlayer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def settings(self) -> Mapping[str, str | float]:
        """See ``ChatPlayer``. Without the address: a model may be reached at several."""
        extra = self._endpoint.extra_body
        return {
            "model": self._endpoint.model,
            "temperature": self._temperature,
            "top_p": self._top_p,
        } | ({"extra_body": json.dumps(extra, sort_keys=True)} if extra else {})

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        """See ``ChatPlayer``.

        Raises:
            ConfigError: the endpoint rejects the key or the model's name.
            EngineError: it cannot be reached, rejects the request, or too much fails in a row.
            NoAnswerError: it refuses this conversation, or its responses hold no answer.
        """
        failures = _Failures(random.Random(derive_seed(seed, "wait")))
        answer = None
        while answer is None:
            try:
                answer = await self._try(messages, max_tokens=max_tokens, seed=seed)
            except RetryableError as error:
                await self._wait_out(error, failures)
            except NoAnswerError as error:
                raise self._unanswered(str(error), failures) from None
            failures.num_retries += answer is None
        self._num_unanswered = 0
        if answer.prompt_tokens is None or answer.answer_tokens is None:
            self._warn_uncounted()
        return replace(
            answer, num_retries=failures.num_retries, seconds=time.monotonic() - failures.started
        )

    async def _try(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer | None:
        """Send one request; None = a parameter was refused, retry at once without it."""
        async with self._slots:
            await self._pause()
            dialect = self._dialect
            try:
                async with asyncio.timeout(self._patience.timeout_s):
                    return await self._ask(messages, dialect, max_tokens=max_tokens, seed=seed)
            except openai.APIStatusError as error:
                self._is_reached = True
                if self._has_adapted(error, dialect):
                    return None
                raise status_error(error, self._endpoint, now=time.time()) from None
            except (TimeoutError, openai.APITimeoutError):
                raise RetryableError("no answer in time") from None
            except openai.APIConnectionError as error:
                raise connection_error(error, self._endpoint, is_reached=self._is_reached) from None

    async def _ask(
        self, messages: Sequence[Message], dialect: Dialect, *, max_tokens: int, seed: int
    ) -> ChatAnswer:
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
            extra_body=self._endpoint.extra_body,
        )
        self._is_reached = True
        content = read_json(response.content, self._endpoint)
        if reported := reported_error(content):
            status, body = reported
            error = openai.APIStatusError("", response=response.http_response, body=body)
            error.status_code = status  # that of HTTP is 200
            raise error
        return read_answer(content, self._endpoint, max_tokens=max_tokens)

    def _has_adapted(self, error: openai.APIStatusError, dialect: Dialect) -> bool:
        """Return whether another dialect may be accepted, and switch to it."""
        better = dialect.after_refusal(error, temperature=self._temperature, top_p=self._top_p)
        if better is None:
            return False
        if self._dialect == dialect:  # else another request has met the same refusal
            self._dialect = better
            left_out = ", ".join(sorted(better.left_out)) or "nothing"
            _log.warning(
                "the endpoint refused a parameter: from now on %s limits an answer, left out: %s",
                better.limit,
                left_out,
            )
        return True

    async def _pause(self) -> None:
        """Wait until the endpoint accepts requests again."""
        loop = asyncio.get_running_loop()
        while (left_s := self._resume_at - loop.time()) > 0:
            await asyncio.sleep(left_s)

    async def _wait_out(self, error: RetryableError, failures: _Failures) -> None:
        """Wait before a retry; all requests wait if the endpoint asks for it.

        Raises:
            EngineError: the requests of this answer failed too often or for too long.
            NoAnswerError: too many responses held none.
        """
        now = asyncio.get_running_loop().time()
        failures.began = now if failures.began is None else failures.began
        failures.num_unusable += isinstance(error, UnusableError)
        failures.num_faults += not (error.is_rate_limit or isinstance(error, UnusableError))
        if failures.num_unusable >= self._patience.max_unusable:
            raise self._unanswered(str(error), failures)
        wait_s = (error.wait_s or self._own_wait_s(failures)) * (
            1 + _JITTER * failures.rng.random()
        )
        if failures.num_faults >= self._patience.max_faults:
            raise self._no_answer(f"in {failures.num_faults} attempts", error)
        longest_s = self._patience.longest_trouble_s
        if error.wait_s and error.wait_s > longest_s:
            asks = f"and asks to wait {error.wait_s:,.0f} s, more than the limit of {longest_s:g} s"
            raise self._no_answer(asks, error)
        if now + wait_s - failures.began > longest_s:
            raise self._no_answer(f"within {longest_s:g} s", error)
        if error.is_rate_limit or error.wait_s:
            _log.info("all requests wait %.1f s (%s)", wait_s, error)
            self._resume_at = max(self._resume_at, now + wait_s)
            await self._pause()
        else:
            _log.info("a request waits %.1f s (%s)", wait_s, error)
            await asyncio.sleep(wait_s)

    def _own_wait_s(self, failures: _Failures) -> float:
        """Return the wait if the endpoint asks for none."""
        doubled = self._patience.first_wait_s * 2.0 ** min(failures.num_retries, 30)
        return min(doubled, self._patience.longest_wait_s)

    def _no_answer(self, when: str, last: object) -> EngineError:
        return EngineError(
            f"the endpoint at {self._endpoint.host} gave no answer {when} (last: {last}); check it "
            "and repeat the command: stored answers are not requested again"
        )

    def _unanswered(self, reason: str, failures: _Failures) -> NoAnswerError | EngineError:
        """Return what ends an attempt, or the evaluation if all the latest attempts ended so."""
        self._num_unanswered += 1
        if self._num_unanswered >= self._patience.max_unanswered:
            return self._no_answer(f"to {self._num_unanswered} attempts in a row", reason)
        _log.warning("an attempt ends without an answer: %s", reason)
        error = NoAnswerError(reason)
        error.num_retries = failures.num_retries
        error.seconds = time.monotonic() - failures.started
        return error

    def _warn_uncounted(self) -> None:
        if not self._has_warned_uncounted:
            self._has_warned_uncounted = True
            _log.warning(
                "the endpoint does not count tokens: token counts and prices stay unknown, and "
                "the token budget of an episode cannot be enforced"
            )
