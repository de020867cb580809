"""Plays one episode with a policy that takes tokens. Knows functions, not a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import closing
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.envs.registry import make_environment
from cast_ray.errors import CallbackError, TrajectoryError
from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer, Conversation
from cast_ray.rollout.generate import Generate, GenerateRequest, Lane
from cast_ray.rollout.trajectory import Trajectory
from cast_ray.seeds import derive_seed

_SLOWEST_S = 300.0
"""Longest call of an environment; reading a game of ALFWorld takes seconds."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How answers are sampled and how long a conversation may grow."""

    temperature: float
    top_p: float
    max_answer_tokens: int
    prompt_tokens: int
    """Most tokens of the opening prompt."""
    response_tokens: int
    """Most tokens of everything after it, observations included."""
    conversation_tokens: int
    """Most tokens of both together: what the engine, and the model, hold."""
    truncated: str
    """What happens to an answer without its end-of-turn token: ``skip`` does not execute it,
    ``execute`` does if it contains an action. Either way it ends the episode."""

    def response_tokens_after(self, num_prompt_tokens: int) -> int:
        """Return the most tokens of everything after a prompt of that many."""
        return min(self.response_tokens, self.conversation_tokens - num_prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One episode to play; (step, group, episode, attempt) identifies it in the run."""

    step: int = 0
    group: int = 0
    episode: int = 0
    attempt: int = 0
    puzzle: Puzzle
    turn_budget: int
    seed: int
    min_weight_version: int = 0
    """No token of it may be written by older weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTurn:
    """The turn just played, for a spectator."""

    board: str
    """The state before the turn as text, as in ``EnvironmentTurn``."""
    board_after: str
    answer: str
    action: str
    """Canonical spelling; empty if none could be read or the answer was cut off."""
    effect: str
    feedback: str
    num_tokens: int
    """Of the answer."""
    seconds: float
    """From the request to its answer."""
    reward: float
    """Of the episode so far."""
    end_reason: str
    """Empty while the episode goes on."""


Watch = Callable[[PlayedTurn], Awaitable[str]]
"""Sees every turn and may end the episode: returns the reason, or an empty text."""


@dataclass(slots=True)
class Progress:
    """What a running episode has done so far, turn by turn."""

    states: list[str]
    actions: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    feedback: str = ""
    """On the latest turn."""
    reward: float = 0.0
    end_reason: str = ""
    """Empty while the episode goes on."""

    def note(self, turn: EnvironmentTurn) -> None:
        """Append a turn that the environment has carried out."""
        self.actions.append(turn.action)
        self.effects.append(turn.effect.value)
        self.states.append(turn.state)
        self.feedback = turn.feedback
        self.reward = turn.reward
        self.end_reason = turn.end_reason

    def skip(self) -> None:
        """Append a turn whose answer was cut off and is not carried out; it ends the episode."""
        self.actions.append("")
        self.effects.append(Effect.TRUNCATED.value)
        self.states.append(self.states[-1])
        self.feedback = ""
        self.end_reason = "truncated"


@dataclass(slots=True)
class _Record(Progress):
    """What the trajectory needs besides."""

    answers: list[str] = field(default_factory=list)
    turn_seeds: list[int] = field(default_factory=list)
    seconds_generation: float = 0.0


async def play_episode(
    spec: EpisodeSpec,
    *,
    tokenizer: ChatTokenizer,
    generate: Generate,
    sampling: Sampling,
    is_dead: Callable[[Hashable], bool] | None,
    watch: Watch | None = None,
) -> Trajectory:
    """Play one episode and return its record.

    ``watch`` is awaited after every turn, before the next request.

    Raises:
        TrajectoryError: the opening prompt is longer than ``sampling.prompt_tokens``, or leaves no
            token of ``sampling.conversation_tokens`` for an answer.
    """
    environment = make_environment(spec.puzzle, turn_budget=spec.turn_budget, is_dead=is_dead)
    with closing(environment):
        started = time.perf_counter()
        first = await run_blocking(environment, environment.start)
        prompt = tokenizer.opening(environment.rules, first)
        if len(prompt) > min(sampling.prompt_tokens, sampling.conversation_tokens - 1):
            raise TrajectoryError(
                f"the opening prompt of puzzle {spec.puzzle.puzzle_id} has {len(prompt)} tokens; "
                f"raise rollout.prompt_tokens ({sampling.prompt_tokens}), or what the engine holds "
                f"(engine.max_model_len and the model's own limit, {sampling.conversation_tokens})"
            )
        talk = Conversation.start(prompt)
        record = _Record(states=[environment.state()])
        lane = Lane(group=spec.group)
        while not record.end_reason:
            seconds_before = record.seconds_generation
            await _play_turn(spec, talk, record, environment, tokenizer, generate, lane, sampling)
            if watch is not None:
                turn = _latest_turn(talk, record, record.seconds_generation - seconds_before)
                record.end_reason = await watch(turn) or record.end_reason
        seconds_total = time.perf_counter() - started
        return _trajectory(spec, talk, record, seconds_total - record.seconds_generation)


async def run_blocking(
    environment: Environment, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Call a method of an environment, in a thread if other episodes would wait for it.

    Raises:
        CallbackError: it did not return in time.
    """
    if not environment.is_slow:
        return call(*args, **kwargs)
    try:
        return await asyncio.wait_for(asyncio.to_thread(call, *args, **kwargs), _SLOWEST_S)
    except TimeoutError:
        raise CallbackError(
            f"{call.__name__} of an environment did not return within {_SLOWEST_S:g} s: look where "
            "it waits or loops"
        ) from None


async def _play_turn(
    spec: EpisodeSpec,
    talk: Conversation,
    record: _Record,
    environment: Environment,
    tokenizer: ChatTokenizer,
    generate: Generate,
    lane: Lane,
    sampling: Sampling,
) -> None:
    """Get one answer from the policy, carry it out, and append both to the record."""
    seed = derive_seed(spec.seed, "turn", len(record.effects))
    budget = sampling.response_tokens_after(talk.num_prompt_tokens)
    left = budget - talk.num_response_tokens
    request = GenerateRequest(
        token_ids=tuple(talk.token_ids),
        max_tokens=min(sampling.max_answer_tokens, left),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=seed,
        stop_token_ids=tokenizer.end_ids,
        min_weight_version=spec.min_weight_version,
    )
    asked = time.perf_counter()
    completion = await generate(request, lane)
    record.seconds_generation += time.perf_counter() - asked
    talk.append_answer(
        completion.token_ids, completion.rollout_logprobs, completion.weight_versions
    )
    record.turn_seeds.append(seed)
    answer = tokenizer.text(completion.token_ids)
    record.answers.append(answer)
    is_cut_off = completion.token_ids[-1] not in tokenizer.end_ids
    if is_cut_off and sampling.truncated == "skip":
        record.skip()  # its tokens stay in the loss
        return
    turn = await run_blocking(environment, environment.step, answer)
    record.note(turn)
    if is_cut_off and not turn.end_reason:
        record.end_reason = "token_budget"
    elif not turn.end_reason:
        observation = tokenizer.observation(turn.message)
        # At least one token must be left for the next answer.
        if talk.num_response_tokens + len(observation) >= budget:
            record.end_reason = "token_budget"
        else:
            talk.append_observation(observation)


def _latest_turn(talk: Conversation, record: _Record, seconds: float) -> PlayedTurn:
    return PlayedTurn(
        board=record.states[-2],
        board_after=record.states[-1],
        answer=record.answers[-1],
        action=record.actions[-1],
        effect=record.effects[-1],
        feedback=record.feedback,
        num_tokens=talk.turn_ends[-1] - talk.turn_starts[-1],
        seconds=seconds,
        reward=record.reward,
        end_reason=record.end_reason,
    )


def _trajectory(
    spec: EpisodeSpec, talk: Conversation, record: _Record, seconds_environment: float
) -> Trajectory:
    return Trajectory(
        step=spec.step,
        group=spec.group,
        episode=spec.episode,
        attempt=spec.attempt,
        game=spec.puzzle.game,
        tier=spec.puzzle.tier,
        puzzle_id=spec.puzzle.puzzle_id,
        puzzle=spec.puzzle.board,
        turn_budget=spec.turn_budget,
        seed=spec.seed,
        token_ids=tuple(talk.token_ids),
        loss_mask=tuple(talk.loss_mask),
        rollout_logprobs=tuple(talk.rollout_logprobs),
        weight_versions=tuple(talk.weight_versions),
        turn_starts=tuple(talk.turn_starts),
        turn_ends=tuple(talk.turn_ends),
        turn_seeds=tuple(record.turn_seeds),
        answers=tuple(record.answers),
        actions=tuple(record.actions),
        effects=tuple(record.effects),
        states=tuple(record.states),
        reward=record.reward,
        end_reason=record.end_reason,
        seconds_generation=record.seconds_generation,
        seconds_environment=seconds_environment,
    )
