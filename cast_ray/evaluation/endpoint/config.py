"""Settings of an OpenAI-compatible endpoint: address, key, prices, retries and time-outs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cast_ray.errors import ConfigError

_URL, _KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
_OFFICIAL = "https://api.openai.com/v1"
_PER_MILLION = 1e-6
_SHORTEST_SECRET = 8
_OURS = {
    "model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens",
    "max_completion_tokens",
}  # fmt: skip
"""Parameters of a request that the evaluation sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model behind an address. No message, file or ``repr`` contains the key."""

    model: str
    base_url: str
    api_key: str = field(repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of every request. Any: JSON values."""

    @classmethod
    def from_environment(cls, model: str, environ: Mapping[str, str]) -> Endpoint:
        """Return the endpoint that ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` name.

        Args:
            model: its name at the endpoint.
            environ: ``os.environ``. The default base URL is that of OpenAI.

        Raises:
            ConfigError: one of the two is missing or invalid.
        """
        key = environ.get(_KEY, "").strip()
        if not key:
            raise ConfigError(
                f"openai:{model} needs a key: set {_KEY} (any word will do if the endpoint needs "
                "none)"
            )
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"{_KEY} holds a character that no key has: set it again")
        return cls(model=model, base_url=_checked_url(environ.get(_URL, "").strip()), api_key=key)

    @property
    def host(self) -> str:
        """For messages: scheme, host and port of the address."""
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.netloc}"

    def without_key(self, text: str) -> str:
        """Return an endpoint's message with the key replaced, should it be in there.

        A key of a few letters is no secret, and any message may contain it.
        """
        return text if len(self.api_key) < _SHORTEST_SECRET else text.replace(self.api_key, "***")


def parse_extra_body(text: str) -> dict[str, Any]:
    """Parse ``--extra-body``, the JSON object that is merged into every request.

    Raises:
        ConfigError: it is no JSON object, or sets what the evaluation sets.
    """
    try:
        body = json.loads(text)
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        taken = sorted(_OURS & body.keys())
    except (ValueError, AttributeError, RecursionError):
        raise ConfigError(
            f'--extra-body must be a JSON object such as {{"top_k": 20}}, got {text[:80]!r}'
        ) from None
    if taken:
        raise ConfigError(
            f"--extra-body must not set {', '.join(taken)}, which the evaluation sets: leave it "
            "out, or use a configuration value such as evaluation.temperature=0.6"
        )
    return body


def _checked_url(text: str) -> str:
    """Return a base URL. It is never part of a message, as it may hold a secret."""
    if not text:
        return _OFFICIAL
    unusable = ConfigError(f"{_URL} is no address: set it to one such as {_OFFICIAL}")
    if not text.isprintable() or " " in text:
        raise unusable
    try:
        url = urlsplit(text)
        _ = url.port  # parsed on access
    except ValueError:
        raise unusable from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"{_URL} must begin with http:// or https:// and a host")
    if "@" in url.netloc:
        raise ConfigError(f"{_URL} must not hold a user or password: set the key as {_KEY}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Concurrency, time-outs and retries of requests to an endpoint."""

    concurrency: int = 16
    """Most concurrent requests."""
    timeout_s: float = 600.0
    """Longest wait for one answer; models that think take minutes."""
    max_faults: int = 8
    """Failures of one answer's requests that end the evaluation; rate limits do not count."""
    max_unusable: int = 3
    """Responses without an answer to one request that end its attempt; each may cost money."""
    max_unanswered: int = 8
    """Such attempts in a row that end the evaluation."""
    first_wait_s: float = 1.0
    """Wait before the first retry; it doubles each time."""
    longest_wait_s: float = 60.0
    """Limit of this wait; one that the endpoint asks for may be longer."""
    longest_trouble_s: float = 1800.0
    """Longest time of failures for one answer, rate limits included; then the evaluation ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of tokens, in US dollars per million; None = unknown."""

    price_per_million_prompt: float | None = None
    price_per_million_answer: float | None = None

    def __post_init__(self) -> None:
        for name in ("price_per_million_prompt", "price_per_million_answer"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < float("inf"):
                raise ConfigError(f"{name} must be a number >= 0, got {price}")

    def price_usd(self, *, prompt_tokens: int | None, answer_tokens: int | None) -> float | None:
        """Return the price of tokens; None if a price or a count is unknown.

        Cached prompts count in full; discounts are not known.
        """
        prompt, answer = self.price_per_million_prompt, self.price_per_million_answer
        if prompt is None or answer is None or prompt_tokens is None or answer_tokens is None:
            return None
        return (prompt * prompt_tokens + answer * answer_tokens) * _PER_MILLION
