"""Plays one episode with a player that takes messages, where ``episode`` needs tokens.

Only the player can count its tokens, and only afterwards. The tokens behind the opening after call
t are ``prompt(t) - prompt(0) + answer(t)``: they include observations; thoughts that are missing
from the next prompt count in the call that wrote them. So an answer may begin although the
observation before it has used up the budget, or end beyond the budget: it then counts as cut off,
as an engine would have done. Nothing here knows an endpoint. Letter: ``T`` turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cast_ray.envs.environment import Environment
from cast_ray.errors import TrajectoryError
from cast_ray.rollout.episode import Progress, Sampling, run_blocking
from cast_ray.seeds import derive_seed

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length"]
NO_ANSWER = "no_answer"
"""End reason of an episode whose player gave no usable answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """One answer and its cost."""

    text: str
    finish_reason: FinishReason
    """``stop``: the player ended it; ``length``: it was cut off."""
    prompt_tokens: int | None
    """Of the conversation before it, as the player counts; None = unknown."""
    answer_tokens: int | None
    """Of the answer, including thoughts that are not in ``text``; None = unknown."""
    num_retries: int
    """How often the request was repeated."""
    seconds: float
    """From the first request to the answer, including waits."""
    is_from_journal: bool = False
    """It was given in an earlier start, and is reused."""


class NoAnswerError(Exception):
    """A player gives this conversation no usable answer, now or later; the text says why."""

    num_retries: int = 0
    """As in ``ChatAnswer``, like the next."""
    seconds: float = 0.0


class ChatPlayer(Protocol):
    """Answers any number of conversations at a time."""

    @property
    def settings(self) -> Mapping[str, str | float]:
        """What determines its answers besides the conversation: model, temperature, …"""
        ...

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        """Return the next message of a conversation.

        Args:
            messages: the conversation so far; the last one is the user's.
            max_tokens: limit of the answer, >= 1.
            seed: of this turn; a player may ignore it.

        Raises:
            NoAnswerError: the episode ends without it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEpisode:
    """The record of one episode; names as in ``Attempt``."""

    answers: tuple[str, ...]
    """``[T]``."""
    actions: tuple[str, ...]
    """``[T]`` canonical spelling, empty if none could be read or the answer was cut off."""
    effects: tuple[str, ...]
    """``[T]`` values of ``Effect``."""
    states: tuple[str, ...]
    """``[T + 1]``."""
    reward: float
    end_reason: str
    """That of the environment, or ``truncated``, ``token_budget`` or ``no_answer``."""
    answer_tokens: tuple[int | None, ...]
    """``[T]``; None if the player did not count."""
    prompt_tokens: tuple[int | None, ...]
    """``[T]`` of the conversation before each answer; None if the player did not count."""
    num_retries: int
    seconds: float
    """Spent waiting for answers, including those of earlier starts."""
    num_from_journal: int
    """Answers reused from earlier starts."""
    no_answer_reason: str = ""
    """Why there was no usable answer; empty for other end reasons."""

    @property
    def total_answer_tokens(self) -> int | None:
        """Of all answers; None if the player did not count them all."""
        return total(self.answer_tokens)

    @property
    def total_prompt_tokens(self) -> int | None:
        """Of all requests together; None if the player did not count them all."""
        return total(self.prompt_tokens)


def total(counts: tuple[int | None, ...]) -> int | None:
    """Return the sum of counts; None if one is unknown.

    >>> total((1, 2)), total((1, None)), total(())
    (3, None, 0)
    """
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(slots=True, kw_only=True)
class _Record(Progress):
    """What a running conversation has collected besides."""

    messages: list[Message]
    answers: list[ChatAnswer] = field(default_factory=list)
    lost: NoAnswerError = field(default_factory=NoAnswerError)
    num_used: int = 0
    """Tokens behind the opening as far as they are known; never more than there are."""


async def play_messages(
    environment: Environment,
    player: ChatPlayer,
    *,
    puzzle_id: str,
    sampling: Sampling,
    seed: int,
) -> ChatEpisode:
    """Play one episode and return its record. The environment is the caller's to close.

    Args:
        environment: an episode that was not started.
        player: writes the answers; it samples as it likes.
        puzzle_id: for error messages.
        sampling: the budgets, and what happens to an answer that was cut off.
        seed: of the episode; those of its turns follow from it.

    Raises:
        TrajectoryError: the opening prompt is longer than ``sampling.prompt_tokens``.
    """
    first = await run_blocking(environment, environment.start)
    record = _Record(
        messages=[
            Message(role="system", content=environment.rules),
            Message(role="user", content=first),
        ],
        states=[environment.state()],
    )
    while not record.end_reason:
        left = sampling.response_tokens - record.num_used
        try:
            answer = await player.answer(
                tuple(record.messages),
                max_tokens=min(sampling.max_answer_tokens, left),
                seed=derive_seed(seed, "turn", len(record.answers)),
            )
        except NoAnswerError as error:
            record.end_reason, record.lost = NO_ANSWER, error
            break
        if not record.answers:
            _check_opening(answer, puzzle_id, sampling)
        record.answers.append(answer)
        record.num_used = _num_used(record)
        await _carry_out(record, environment, sampling)
    return _episode(record)


def _check_opening(answer: ChatAnswer, puzzle_id: str, sampling: Sampling) -> None:
    size = answer.prompt_tokens
    if size is not None and size > sampling.prompt_tokens:
        raise TrajectoryError(
            f"the opening prompt of puzzle {puzzle_id} has {size} tokens as the model counts them; "
            f"raise rollout.prompt_tokens ({sampling.prompt_tokens})"
        )


def _num_used(record: _Record) -> int:
    """Return the least number of tokens behind the opening; unknown counts add nothing."""
    opening, latest = record.answers[0].prompt_tokens, record.answers[-1]
    if opening is None or latest.prompt_tokens is None or latest.answer_tokens is None:
        return record.num_used
    return max(0, latest.prompt_tokens - opening + latest.answer_tokens)


async def _carry_out(record: _Record, environment: Environment, sampling: Sampling) -> None:
    """Carry out the latest answer and append the result."""
    answer = record.answers[-1]
    is_cut_off = answer.finish_reason == "length" or record.num_used > sampling.response_tokens
    if is_cut_off and sampling.truncated == "skip":
        record.skip()
        return
    turn = await run_blocking(environment, environment.step, answer.text)
    record.note(turn)
    if turn.end_reason:
        return
    # At least one token must be left for the next answer.
    if is_cut_off or record.num_used >= sampling.response_tokens:
        record.end_reason = "token_budget"
    record.messages.append(Message(role="assistant", content=answer.text))
    record.messages.append(Message(role="user", content=turn.message))


def _episode(record: _Record) -> ChatEpisode:
    return ChatEpisode(
        answers=tuple(answer.text for answer in record.answers),
        actions=tuple(record.actions),
        effects=tuple(record.effects),
        states=tuple(record.states),
        reward=record.reward,
        end_reason=record.end_reason,
        answer_tokens=tuple(answer.answer_tokens for answer in record.answers),
        prompt_tokens=tuple(answer.prompt_tokens for answer in record.answers),
        num_retries=sum(answer.num_retries for answer in (*record.answers, record.lost)),
        seconds=sum(answer.seconds for answer in (*record.answers, record.lost)),
        num_from_journal=sum(answer.is_from_journal for answer in record.answers),
        no_answer_reason=str(record.lost),
    )
