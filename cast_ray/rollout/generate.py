"""What the core asks of a policy and what it gets back: tokens in, tokens and logprobs out.

Nothing here knows an engine. Whoever generates (an engine behind Ray Serve, a double in a test)
takes a ``GenerateRequest`` and returns a ``Completion``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

NO_STOP_TOKEN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One answer that is wanted: the conversation so far and how to sample.

    Training needs ``temperature`` 1 and ``top_p`` 1; anything else falsifies the denominator of
    the ratio. Top-k and min-p are not offered for the same reason.
    """

    token_ids: tuple[int, ...]
    """The whole conversation so far, ``[L]``."""
    max_tokens: int
    """The answer is cut off after so many tokens; at least 1."""
    temperature: float
    """0 = always the likeliest token."""
    top_p: float
    """In (0, 1]."""
    seed: int
    """Same seed, same weights, same tokens: the same answer, whatever else is running."""
    stop_token_id: int
    """The end-of-turn token: ends the answer and is part of it; ``NO_STOP_TOKEN`` = only
    ``max_tokens`` ends it."""
    min_weight_version: int = 0
    """No token of the answer may be written by older weights; an engine that has only older ones
    answers when it has newer."""
    tokenizer: str = ""
    """``chat.tokenizer_digest`` of whoever made ``token_ids``: a served model that has another
    refuses them; empty = nobody exchanges the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer, with what the policy thought of it."""

    token_ids: tuple[int, ...]
    """``[T]`` sampled tokens, the stop token included when there is one."""
    rollout_logprobs: tuple[float, ...]
    """``[T]`` logprobs of ``token_ids`` under the policy at temperature 1, nothing cut off,
    whatever temperature and top-p they were sampled with."""
    finish_reason: Literal["stop", "length"]
    """``stop``: ended by the stop token; ``length``: cut off."""
    weight_versions: tuple[int, ...]
    """``[T]`` version of the weights that wrote each of ``token_ids``. Only grows: where it does,
    the engine's weights were exchanged while it wrote, and the tokens behind it still attend to
    keys and values that the older weights computed; so may those of a request that waited in the
    engine's queue meanwhile, whose tokens are all the newer weights'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What comes back for a request that no engine can answer; asking again does not help."""

    reason: str
    """One sentence."""


@dataclass(slots=True, kw_only=True)
class Lane:
    """What the requests of one episode have in common; the one thing here that changes.

    An engine answers a conversation faster when it holds the keys and values of its beginning, so
    whoever chooses engines notes here which one that is.
    """

    group: int
    """Episodes of one group share their prompt, and begin on the same engine."""
    engine: int | None = None
    """Number of the engine that holds the conversation so far; None = none does yet."""


Generate = Callable[[GenerateRequest, Lane], Awaitable[Completion]]
"""Answers a request of an episode, wherever that is done."""


@runtime_checkable
class CountsRequests(Protocol):
    """A ``Generate`` that knows what became of its requests."""

    def counters(self) -> Mapping[str, float]:
        """Return totals since the start, by name."""
        ...
