"""An OpenAI-compatible endpoint: its address, prices, retries and time-outs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cast_ray.errors import ConfigError

_URL, _KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
_OFFICIAL = "https://api.openai.com/v1"
_PER_MILLION = 1e-6
_SHORTEST_SECRET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model behind an address. The key is in no message, file or ``repr``."""

    model: str
    base_url: str
    api_key: str = field(repr=False)

    @classmethod
    def from_environment(cls, model: str, environ: Mapping[str, str]) -> Endpoint:
        """Return the endpoint that ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` name.

        Args:
            model: its name there.
            environ: ``os.environ``. Without a base URL it is the one of OpenAI itself.

        Raises:
            ConfigError: one of the two cannot be used.
        """
        key = environ.get(_KEY, "").strip()
        if not key:
            raise ConfigError(
                f"openai:{model} needs a key: set {_KEY} (to any word where the endpoint asks for "
                "none)"
            )
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"{_KEY} holds a character that no key has: set it anew")
        return cls(model=model, base_url=_checked_url(environ.get(_URL, "").strip()), api_key=key)

    @property
    def host(self) -> str:
        """For messages: scheme, host and port, without what else the address may hold."""
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.netloc}"

    def without_key(self, text: str) -> str:
        """Return what an endpoint said, with the key blanked should it be in there.

        A key of a few letters is none, and its letters are in any sentence.
        """
        return text if len(self.api_key) < _SHORTEST_SECRET else text.replace(self.api_key, "***")


def _checked_url(text: str) -> str:
    """Return a base URL; it is shown only where it cannot hold a secret."""
    if not text:
        return _OFFICIAL
    unusable = ConfigError(f"{_URL} is no address: set it to one as {_OFFICIAL}")
    if not text.isprintable() or " " in text:
        raise unusable
    try:
        url = urlsplit(text)
        _ = url.port  # read where it is asked for
    except ValueError:
        raise unusable from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"{_URL} must begin with http:// or https:// and a host's name")
    if "@" in url.netloc:
        raise ConfigError(f"{_URL} must not hold a user or password: give the key as {_KEY}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How an endpoint is asked that has limits and faults."""

    concurrency: int = 16
    """Most requests on their way at a time."""
    timeout_s: float = 600.0
    """Longest wait for one answer; models that think first take minutes."""
    max_faults: int = 8
    """So many failures in a row to get one answer end the evaluation. A rate limit is none."""
    first_wait_s: float = 1.0
    """Before the first repetition; doubles each time."""
    longest_wait_s: float = 60.0
    """Of the waits that nobody asked for."""
    longest_trouble_s: float = 1800.0
    """From the first failure to get an answer, rate limits included; then the evaluation ends."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "max_faults"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("timeout_s", "first_wait_s", "longest_wait_s", "longest_trouble_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What tokens cost, in US dollars a million; None = unknown."""

    price_per_million_prompt: float | None = None
    price_per_million_answer: float | None = None

    def __post_init__(self) -> None:
        for name in ("price_per_million_prompt", "price_per_million_answer"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < float("inf"):
                raise ConfigError(f"{name} must be a number >= 0, got {price}")

    def price_usd(self, *, prompt_tokens: int | None, answer_tokens: int | None) -> float | None:
        """Return what so many tokens cost; None where a price or a count is unknown.

        Prompts that an endpoint found in its cache count in full: discounts are its own affair.
        """
        prompt, answer = self.price_per_million_prompt, self.price_per_million_answer
        if prompt is None or answer is None or prompt_tokens is None or answer_tokens is None:
            return None
        return (prompt * prompt_tokens + answer * answer_tokens) * _PER_MILLION
