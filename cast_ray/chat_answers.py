"""What is asked of a player who takes messages and what comes back: texts in, one text out.

``generation`` is the same for policies that take tokens. Nothing here knows an endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length"]
FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """One answer, and what it took to get it."""

    text: str
    finish_reason: FinishReason
    """``stop``: the player ended it; ``length``: it was cut off."""
    prompt_tokens: int | None
    """Of the whole conversation before it, as the player counts; None = it did not say."""
    answer_tokens: int | None
    """Of the answer, with thoughts that are not in ``text``; None = the player did not say."""
    num_retries: int
    """How often it had to be asked again."""
    seconds: float
    """From the first request to the answer, waits included."""
    is_from_journal: bool = False
    """It was given in an earlier start, and not asked for again."""


class ChatPlayer(Protocol):
    """Answers conversations, any number of them at a time."""

    @property
    def settings(self) -> Mapping[str, str | float]:
        """What beside the conversation decides its answers: model, temperature, …"""
        ...

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        """Return the next message of a conversation.

        Args:
            messages: the whole conversation so far; the last one is the user's.
            max_tokens: the answer is cut off after so many tokens, >= 1.
            seed: of this turn; a player may have no use for it.
        """
        ...
