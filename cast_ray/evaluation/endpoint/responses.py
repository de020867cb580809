"""Responses of an endpoint: an answer, an error that a retry may fix, or a refusal."""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import openai

from cast_ray.errors import CastRayError, ConfigError, EngineError
from cast_ray.evaluation.endpoint.config import Endpoint
from cast_ray.rollout.chat_episode import ChatAnswer, FinishReason

_REPEATABLE = frozenset({408, 409, 425, 429})
"""Retried, as are all from 500 on."""
_RATE_LIMIT = 429
_NO_MONEY = "insufficient_quota"
_LONGEST_SENTENCE = 300
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "stop",  # an answer without an action, like a refusal by the model
}
_NEW_LIMIT = "max_completion_tokens"


class RetryableError(Exception):
    """A request failed; a retry may succeed. Its text is a short reason for the log."""

    def __init__(
        self, reason: str, *, wait_s: float | None = None, is_rate_limit: bool = False
    ) -> None:
        """Keep what decides the retry; ``wait_s`` is the wait that the endpoint asks for."""
        super().__init__(reason)
        self.wait_s = wait_s
        self.is_rate_limit = is_rate_limit


def read_answer(body: bytes) -> ChatAnswer:
    """Parse the body of a chat completion; the caller fills in retries and seconds.

    Raises:
        RetryableError: it is not JSON, or holds no answer.
    """
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        message = choice["message"]
        text = message.get("content")
        finish = _FINISH[choice["finish_reason"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RetryableError(f"unreadable answer ({type(error).__name__})") from None
    if text is None and choice["finish_reason"] != "stop":
        text = ""  # all tokens were thoughts, or the filter removed the text
    if text is None:
        text = message.get("refusal")
    if not isinstance(text, str):
        raise RetryableError("answer without text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RetryableError("answer with half a character") from None
    usage = content.get("usage")
    return ChatAnswer(
        text=text,
        finish_reason=finish,
        prompt_tokens=_count(usage, "prompt_tokens"),
        answer_tokens=_count(usage, "completion_tokens"),
        num_retries=0,
        seconds=0.0,
    )


def _count(usage: object, name: str) -> int | None:
    """Return a count of tokens, or None; an answer without counts is still an answer."""
    if not isinstance(usage, dict):
        return None
    value = cast(dict[str, object], usage).get(name)
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def status_error(
    error: openai.APIStatusError, endpoint: Endpoint, *, now: float
) -> RetryableError | CastRayError:
    """Return what to raise for an error status: ``RetryableError``, or what ends the evaluation.

    Args:
        error: the client's.
        endpoint: that sent it.
        now: ``time.time()``, for waits that are given as a date.
    """
    is_retryable = error.status_code in _REPEATABLE or error.status_code >= 500
    if is_retryable and error.code != _NO_MONEY:  # a 429 that no wait resolves
        return RetryableError(
            f"status {error.status_code}",
            wait_s=asked_wait(error.response.headers, now=now),
            is_rate_limit=error.status_code == _RATE_LIMIT,
        )
    where = f"the endpoint at {endpoint.host}"
    if error.status_code in (401, 403):
        return ConfigError(f"{where} rejects the key: set OPENAI_API_KEY")
    sentence = sentence_of(error, endpoint)
    if error.status_code == 404:
        return ConfigError(
            f"{where} has no model {endpoint.model!r}: check openai:NAME and OPENAI_BASE_URL "
            f"({sentence})"
        )
    return EngineError(f"{where} rejects a request with status {error.status_code}: {sentence}")


def sentence_of(error: openai.APIStatusError, endpoint: Endpoint) -> str:
    """Return the endpoint's own message of an error, on one line."""
    said = error.body
    if isinstance(said, dict):
        body = cast(dict[str, object], said)
        said = body.get("message", body.get("detail", body))
    text = said if isinstance(said, str) else json.dumps(said, default=str)
    return endpoint.without_key(" ".join(text.split()))[:_LONGEST_SENTENCE] or "no reason given"


def asked_wait(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the wait in seconds that response headers ask for; None if they ask for none."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        if math.isfinite(wait_s):
            return max(0.0, wait_s)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The parameters that an endpoint accepts, learned from its refusals."""

    limit: str = "max_tokens"
    """Name of the parameter that limits the tokens of an answer."""
    left_out: frozenset[str] = frozenset()

    def parameters(
        self, *, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> dict[str, Any]:
        """Return the parameters of a request that the endpoint accepts. Any: it is JSON."""
        wanted = {
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed & 0x7FFFFFFF,  # some endpoints take 31 bits
            self.limit: max_tokens,
        }
        return {name: value for name, value in wanted.items() if name not in self.left_out}

    def after_refusal(
        self, error: openai.APIStatusError, *, temperature: float, top_p: float
    ) -> Dialect | None:
        """Return the dialect to try next; None if the refusal has another reason.

        Temperature and top-p are left out only if they are 1, the default.
        """
        if error.status_code not in (400, 422):
            return None
        text = f"{error.param or ''} {error.response.text}"
        if self.limit != _NEW_LIMIT and re.search(rf"\b{_NEW_LIMIT}\b", text):
            return replace(self, limit=_NEW_LIMIT)
        neutral = {"seed": True, "top_p": top_p == 1.0, "temperature": temperature == 1.0}
        named = [
            name
            for name, is_neutral in neutral.items()
            if is_neutral and name not in self.left_out and re.search(rf"\b{name}\b", text)
        ]
        # One at a time: a message may name two parameters of which one is accepted.
        return replace(self, left_out=self.left_out | {named[0]}) if named else None
