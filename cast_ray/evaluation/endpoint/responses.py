"""Responses of an endpoint: an answer, an error that a retry may fix, or a refusal.

A refusal of one conversation is a ``NoAnswerError``; any other ends the evaluation.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import openai

from cast_ray.errors import CastRayError, ConfigError, EngineError
from cast_ray.evaluation.endpoint.config import Endpoint
from cast_ray.rollout.chat_episode import ChatAnswer, FinishReason, NoAnswerError

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
_CUT_OFF = re.compile(r"length|max.*tokens", re.IGNORECASE)
"""In a finish reason that OpenAI does not have."""
_OF_CONVERSATION = re.compile(
    r"content.?(filter|policy|management)|flagged|moderation|invalid_prompt"
    r"|context.?(length|window|size)|prompt is too long",
    re.IGNORECASE,
)
"""In a refusal of what a conversation says, or of its length."""
_UNREACHABLE: tuple[tuple[type[OSError], str], ...] = (
    (ssl.SSLCertVerificationError, "has a TLS certificate that is not trusted here: set "
     "SSL_CERT_FILE to the certificates to trust"),
    (ssl.SSLError, "does not speak TLS as expected: check http:// or https:// in OPENAI_BASE_URL"),
    (socket.gaierror, "has an unknown host name: check OPENAI_BASE_URL and the network"),
    (ConnectionRefusedError, "refuses connections: start its server, or check OPENAI_BASE_URL"),
    (TimeoutError, "does not accept connections: check OPENAI_BASE_URL and the network"),
)  # fmt: skip
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


class UnusableError(RetryableError):
    """A response of status 200 holds no answer; it may have been paid for."""


# Any in the next functions: what JSON holds.
def read_json(body: bytes, endpoint: Endpoint) -> Any:
    """Parse a body; UnusableError if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        text = _one_line(body.decode(errors="replace"), endpoint)
        raise UnusableError(f"not JSON: {text}") from None


def reported_error(content: Any) -> tuple[int, Any] | None:
    """Return status and error that a body of status 200 reports; None if it has no such status."""
    choices = content.get("choices") if isinstance(content, dict) else None
    choice = choices[0] if choices and isinstance(choices, list) else content
    errors = [one.get("error") for one in (content, choice) if isinstance(one, dict)]
    for error in errors if choices else [*errors, content]:
        for name in ("code", "status", "status_code"):
            if isinstance(error, dict) and re.fullmatch(r"[45]\d\d", str(error.get(name))):
                return int(error[name]), error
    return None


def read_answer(content: Any, endpoint: Endpoint, *, max_tokens: int) -> ChatAnswer:
    """Return the answer in a chat completion; the caller fills in retries and seconds.

    An answer without text is empty: its tokens were thoughts, or a filter removed it. A finish
    reason that OpenAI does not have needs a text; it counts as ``length`` if it says so or all
    of ``max_tokens`` were used, else as ``stop``.

    Raises:
        UnusableError: there is none.
    """
    try:
        choice = content["choices"][0]
        text = _text_of(choice["message"] if "message" in choice else {"content": choice["text"]})
        text.encode()  # half a character has no bytes
    except (LookupError, TypeError, AttributeError, UnicodeEncodeError):
        raise UnusableError(f"no answer in {_one_line(content, endpoint)}") from None
    usage, ended = content.get("usage"), str(choice.get("finish_reason"))
    num_tokens = _count(usage, "completion_tokens")
    finish = _FINISH.get(ended)
    if finish is None:
        if not text or ended == "error":
            raise UnusableError(f"an answer that ended with {_one_line(choice, endpoint)}")
        is_full = num_tokens is not None and num_tokens >= max_tokens
        finish = "length" if is_full or _CUT_OFF.search(ended) else "stop"
    return ChatAnswer(
        text=text,
        finish_reason=finish,
        prompt_tokens=_count(usage, "prompt_tokens"),
        answer_tokens=num_tokens,
        num_retries=0,
        seconds=0.0,
    )


def _text_of(message: Any) -> str:
    """Return the text of a message without thoughts; LookupError, … if it has another form."""
    text = message.get("content")
    if isinstance(text, list):
        parts = [{"text": one} if isinstance(one, str) else one for one in text]
        said = [one for one in parts if one.get("type", "text") in ("text", "output_text")]
        text = "".join(one["text"] for one in said)
    return message.get("refusal") or "" if text is None or text == "" else text


def _count(usage: object, name: str) -> int | None:
    """Return a count of tokens, or None; an answer without counts is still an answer."""
    if not isinstance(usage, dict):
        return None
    value = cast(dict[str, object], usage).get(name)
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def status_error(
    error: openai.APIStatusError, endpoint: Endpoint, *, now: float
) -> RetryableError | NoAnswerError | CastRayError:
    """Return what to raise for an error status.

    Args:
        error: the client's, or one with the status that a body reports.
        endpoint: that sent it.
        now: ``time.time()``, for waits that are given as a date.
    """
    sentence = sentence_of(error, endpoint)
    said = f"status {error.status_code}: {sentence}"
    is_retryable = error.status_code in _REPEATABLE or error.status_code >= 500
    if is_retryable and _NO_MONEY not in (error.code, error.type):  # a 429 that no wait resolves
        return RetryableError(
            said,
            wait_s=asked_wait(error.response.headers, now=now),
            is_rate_limit=error.status_code == _RATE_LIMIT,
        )
    if _OF_CONVERSATION.search(f"{error.code} {error.type} {sentence}"):
        return NoAnswerError(said)
    where = f"the endpoint at {endpoint.host}"
    if error.status_code == 401:
        return ConfigError(f"{where} rejects the key: set OPENAI_API_KEY")
    if error.status_code == 403:
        return ConfigError(
            f"{where} refuses {endpoint.model!r} to this key with {said}: ask for access, or use "
            "another model or OPENAI_API_KEY"
        )
    if error.status_code == 404:
        return ConfigError(
            f"{where} has no model {endpoint.model!r}: check openai:NAME and OPENAI_BASE_URL "
            f"({sentence})"
        )
    return EngineError(f"{where} rejects a request with {said}")


def connection_error(
    error: openai.APIConnectionError, endpoint: Endpoint, *, is_reached: bool
) -> RetryableError | EngineError:
    """Return what to raise for a failed connection: an endpoint that ``is_reached`` may return."""
    causes = list(_causes(error))
    found = [
        f"{what} ({one})" for kind, what in _UNREACHABLE for one in causes if isinstance(one, kind)
    ]
    if is_reached or not found:
        return RetryableError(found[0] if found else "connection lost")
    return EngineError(f"the endpoint at {endpoint.host} {found[0]}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that led to it; a host with several addresses fails as a group."""
    while error is not None:
        yield error
        for member in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            yield from _causes(member)
        error = error.__cause__ or error.__context__


def sentence_of(error: openai.APIStatusError, endpoint: Endpoint) -> str:
    """Return the endpoint's own message of an error, on one line."""
    said = error.body
    if isinstance(said, dict):
        body = cast(dict[str, object], said)
        said = body.get("message", body.get("detail", body))
    return _one_line(said, endpoint) or "no reason given"


def _one_line(said: object, endpoint: Endpoint) -> str:
    text = said if isinstance(said, str) else json.dumps(said, default=str)
    text = " ".join(text.encode(errors="replace").decode().split())
    return endpoint.without_key(text)[:_LONGEST_SENTENCE]


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
