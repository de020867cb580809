"""The interface to a policy: tokens in, tokens and logprobs out.

Nothing here knows an engine. A generator (an engine behind Ray Serve, a double in a test) takes a
``GenerateRequest`` and returns a ``Completion``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A request for one answer: the conversation so far and how to sample.

    Training needs ``temperature`` 1 and ``top_p`` 1; other values falsify the denominator of the
    ratio. Top-k and min-p are not offered for the same reason.
    """

    token_ids: tuple[int, ...]
    """The conversation so far, ``[L]``."""
    max_tokens: int
    """Limit of the answer; at least 1."""
    temperature: float
    """0 = always the most likely token."""
    top_p: float
    """In (0, 1]."""
    seed: int
    """With the same weights and tokens it gives the same answer, whatever else is running."""
    stop_token_ids: tuple[int, ...]
    """Each of them ends the answer and is part of it; without any, only ``max_tokens`` does."""
    min_weight_version: int = 0
    """No token of the answer may be written by older weights; an engine that has only older ones
    answers when it has newer."""
    tokenizer: str = ""
    """``chat.tokenizer_digest`` of the tokenizer of ``token_ids``: a served model with another one
    refuses them; empty = the model is never replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer and its probabilities."""

    token_ids: tuple[int, ...]
    """``[T]`` sampled tokens, including the stop token if there is one."""
    rollout_logprobs: tuple[float, ...]
    """``[T]`` logprobs of ``token_ids`` under the unmodified policy (temperature 1, nothing cut
    off), whatever temperature and top-p they were sampled with."""
    finish_reason: Literal["stop", "length"]
    """``stop``: ended by the stop token; ``length``: cut off."""
    weight_versions: tuple[int, ...]
    """``[T]`` version of the weights that wrote each of ``token_ids``. Never decreases. Where it
    grows, the weights were updated during the answer, and later tokens still attend to keys and
    values of the older weights. So may tokens of a request that waited in the engine's queue during
    the update, though all of them are the newer weights'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reply to a request that no engine can answer; repeating it does not help."""

    reason: str
    """One sentence."""


@dataclass(slots=True, kw_only=True)
class Lane:
    """What the requests of one episode have in common; mutable, unlike the rest here.

    An engine answers a conversation faster if it has the keys and values of its beginning, so the
    client records here which engine that is.
    """

    group: int
    """Episodes of one group share their prompt, and begin on the same engine."""
    engine: int | None = None
    """Number of the engine that has the conversation so far; None = none yet."""


Generate = Callable[[GenerateRequest, Lane], Awaitable[Completion]]
"""Answers a request of an episode."""


@runtime_checkable
class CountsRequests(Protocol):
    """A ``Generate`` that counts the outcomes of its requests."""

    def counters(self) -> Mapping[str, float]:
        """Return totals since the start, by name."""
        ...
