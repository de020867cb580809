"""What an endpoint says: an answer, something that another try may mend, or that it will not."""

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
from cast_ray.rollout.chat_episode import FinishReason

_REPEATABLE = frozenset({408, 409, 425, 429})
"""Beside all from 500 on."""
_RATE_LIMIT = 429
_NO_MONEY = "insufficient_quota"
_LONGEST_SENTENCE = 300
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "stop",  # an answer without an action, as the model's own refusal is
}
_NEW_LIMIT = "max_completion_tokens"


class MalformedReply(Exception):
    """An answer that cannot be read; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the body of an answer holds."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int | None
    answer_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryableError:
    """Why there is no answer yet; asking again may give one."""

    reason: str
    """A few words for the log."""
    wait_s: float | None
    """Before which the endpoint does not want to be asked; None = it did not say."""
    is_rate_limit: bool


def read_answer(body: bytes) -> Reply:
    """Return what the body of a chat completion says.

    Raises:
        MalformedReply: it is no JSON, or no answer.
    """
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        message = choice["message"]
        text = message.get("content")
        finish = _FINISH[choice["finish_reason"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedReply(f"unreadable answer ({type(error).__name__})") from None
    if text is None and choice["finish_reason"] != "stop":
        text = ""  # all of it went into thoughts, or the filter took it
    if text is None:
        text = message.get("refusal")
    if not isinstance(text, str):
        raise MalformedReply("answer without text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedReply("answer with half a character") from None
    usage = content.get("usage")
    return Reply(
        text=text,
        finish_reason=finish,
        prompt_tokens=_count(usage, "prompt_tokens"),
        answer_tokens=_count(usage, "completion_tokens"),
    )


def _count(usage: object, name: str) -> int | None:
    """Return a count of tokens, None where there is none: no answer is thrown away for it."""
    if not isinstance(usage, dict):
        return None
    value = cast(dict[str, object], usage).get(name)
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def setback_of(error: Exception, endpoint: Endpoint, *, now: float) -> RetryableError:
    """Return what a failure that may pass means.

    Args:
        error: of the client, or ``MalformedReply``, or ``TimeoutError``.
        endpoint: that failed.
        now: ``time.time()``, for waits that are given as a date.

    Raises:
        ConfigError, EngineError: it will not pass.
    """
    if isinstance(error, openai.APIStatusError):
        if not _may_pass(error):
            raise refusal(error, endpoint) from None
        return RetryableError(
            reason=f"status {error.status_code}",
            wait_s=asked_wait(error.response.headers, now=now),
            is_rate_limit=error.status_code == _RATE_LIMIT,
        )
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        reason = "no answer in time"
    elif isinstance(error, MalformedReply):
        reason = str(error)
    else:
        reason = "connection lost"
    return RetryableError(reason=reason, wait_s=None, is_rate_limit=False)


def _may_pass(error: openai.APIStatusError) -> bool:
    if error.code == _NO_MONEY:  # a 429 that no pause ends
        return False
    return error.status_code in _REPEATABLE or error.status_code >= 500


def refusal(error: openai.APIStatusError, endpoint: Endpoint) -> CastRayError:
    """Return the error that ends the evaluation, in one sentence."""
    where = f"the endpoint at {endpoint.host}"
    if error.status_code in (401, 403):
        return ConfigError(f"{where} refuses the key: set OPENAI_API_KEY")
    sentence = sentence_of(error, endpoint)
    if error.status_code == 404:
        return ConfigError(
            f"{where} has no model {endpoint.model!r}: check openai:NAME and OPENAI_BASE_URL "
            f"({sentence})"
        )
    return EngineError(f"{where} refuses a request with {error.status_code}: {sentence}")


def sentence_of(error: openai.APIStatusError, endpoint: Endpoint) -> str:
    """Return what the endpoint itself says about an error, on one line."""
    said = error.body
    if isinstance(said, dict):
        body = cast(dict[str, object], said)
        said = body.get("message", body.get("detail", body))
    text = said if isinstance(said, str) else json.dumps(said, default=str)
    return endpoint.without_key(" ".join(text.split()))[:_LONGEST_SENTENCE] or "no reason given"


def asked_wait(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return how long an endpoint wants to be left alone, in seconds; None if it does not say."""
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
    """What an endpoint understands of a request; found out by its refusals."""

    limit: str = "max_tokens"
    """What it calls the most tokens of an answer."""
    left_out: frozenset[str] = frozenset()

    def parameters(
        self, *, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> dict[str, Any]:
        """Return the parameters of a request as the endpoint wants them. Any: it is JSON."""
        wanted = {
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed & 0x7FFFFFFF,  # some read 32 bits
            self.limit: max_tokens,
        }
        return {name: value for name, value in wanted.items() if name not in self.left_out}

    def after_refusal(
        self, error: openai.APIStatusError, *, temperature: float, top_p: float
    ) -> Dialect | None:
        """Return how to ask instead; None where the refusal is about something else.

        A temperature or top-p is left out only at 1, where it says nothing.
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
        # One at a time: a sentence may name two of which one may stay.
        return replace(self, left_out=self.left_out | {named[0]}) if named else None
