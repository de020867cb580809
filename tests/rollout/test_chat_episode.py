"""Episodes with a player who takes messages: records, budgets, and the token path as reference."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.envs.registry import make_environment
from cast_ray.errors import TrajectoryError
from cast_ray.games.puzzles import Puzzle, puzzle_id_of
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_episode import ChatAnswer, ChatEpisode, Message, play_messages
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.seeds import derive_seed
from tests.support.refusals import refused
from tests.support.rooms import FIXED
from tests.support.scripted import GAME, ScriptedPolicy, build_test_policy, in_turn, play

BOARD = "P_X_O"
RIGHT = "```Right```"
PUZZLE = Puzzle(
    game="sokoban",
    tier="mini",
    puzzle_id=puzzle_id_of(GAME, GAME.decode(BOARD)),
    board=BOARD,
    cost_to_go=3,
    cost_status="exact",
    seed=0,
)
SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    max_answer_tokens=50,
    prompt_tokens=2048,
    response_tokens=5000,
    conversation_tokens=20000,
    truncated="skip",
)
Count = Callable[[Sequence[Message]], int]


@dataclass(frozen=True)
class Request:
    messages: tuple[Message, ...]
    max_tokens: int
    seed: int


class Talker:
    """Gives scripted answers, cut off at the limit, and counts as it is told; words by default."""

    settings: Mapping[str, str | float] = {}

    def __init__(
        self,
        *answers: str,
        count_prompt: Count = lambda messages: sum(len(m.content.split()) for m in messages),
        split: Callable[[str], list[str]] = str.split,
        uncounted: frozenset[int] | None = frozenset(),
    ) -> None:
        self._answers = answers
        self._count_prompt = count_prompt
        self._split = split
        self._uncounted = uncounted
        """Turns without counts; None = all."""
        self.requests: list[Request] = []

    async def answer(
        self, messages: Sequence[Message], *, max_tokens: int, seed: int
    ) -> ChatAnswer:
        turn = len(self.requests)
        self.requests.append(Request(tuple(messages), max_tokens, seed))
        pieces = self._split(self._answers[min(turn, len(self._answers) - 1)])
        is_counted = self._uncounted is not None and turn not in self._uncounted
        return ChatAnswer(
            text="".join(pieces[:max_tokens]) if self._split is not str.split else pieces[0],
            finish_reason="stop" if len(pieces) <= max_tokens else "length",
            prompt_tokens=self._count_prompt(messages) if is_counted else None,
            answer_tokens=min(len(pieces), max_tokens) if is_counted else None,
            num_retries=turn,
            seconds=0.5,
        )


def episode(
    talker: Talker,
    *,
    environment: Environment | None = None,
    turn_budget: int = 6,
    seed: int = 11,
    **changes: object,
) -> ChatEpisode:
    return asyncio.run(
        play_messages(
            environment or make_environment(PUZZLE, turn_budget=turn_budget),
            talker,
            puzzle_id=PUZZLE.puzzle_id,
            sampling=replace(SAMPLING, **changes),
            seed=seed,
        )
    )


def test_episode_is_recorded_turn_by_turn() -> None:
    played = episode(Talker(RIGHT, "```Up```", "well", RIGHT))
    assert played.answers == (RIGHT, "```Up```", "well", RIGHT, RIGHT)
    assert played.actions == ("Right", "Up", "", "Right", "Right")
    assert played.effects == ("changed", "ineffective", "invalid", "changed", "changed")
    assert played.states == (BOARD, "_PX_O", "_PX_O", "_PX_O", "__PXO", "___P*")
    assert (played.end_reason, played.reward) == ("solved", 1.0)
    assert (played.num_retries, played.seconds) == (0 + 1 + 2 + 3 + 4, 2.5)
    assert played.total_answer_tokens == 5


def test_request_is_the_whole_conversation_so_far() -> None:
    talker = Talker("well", RIGHT)
    played = episode(talker)
    assert [message.role for message in talker.requests[-1].messages] == [
        "system",
        *(["user", "assistant"] * 3),
        "user",
    ]
    assert talker.requests[0].messages[0].content == GAME.rules
    for before, after in pairwise(talker.requests):
        assert after.messages[: len(before.messages)] == before.messages
    said = [m.content for m in talker.requests[-1].messages if m.role == "assistant"]
    assert tuple(said) == played.answers[:-1]


def test_turns_have_the_seeds_of_the_token_path() -> None:
    talker = Talker("well")
    episode(talker, seed=5, turn_budget=3)
    assert [r.seed for r in talker.requests] == [derive_seed(5, "turn", turn) for turn in range(3)]


def test_limit_of_an_answer_is_what_the_budget_leaves() -> None:
    talker = Talker("well", "I do not know")
    episode(talker, turn_budget=3, response_tokens=80)
    prompts = [sum(len(m.content.split()) for m in r.messages) for r in talker.requests]
    lengths = [1, 4]
    left = [80 - (prompts[t] - prompts[0] + lengths[t]) for t in range(2)]
    assert [r.max_tokens for r in talker.requests] == [50, *(min(50, n) for n in left)]
    assert left[1] < 50  # else the budget was not tried


def test_answer_that_is_cut_off_is_not_executed() -> None:
    played = episode(Talker(f"{RIGHT} and so on and on"), max_answer_tokens=3)
    assert (played.actions, played.effects) == (("",), ("truncated",))
    assert played.states == (BOARD, BOARD)
    assert (played.end_reason, played.reward) == ("truncated", 0.0)


def test_answer_that_is_cut_off_counts_where_the_reference_is_followed() -> None:
    played = episode(Talker(f"{RIGHT} and so on"), max_answer_tokens=3, truncated="execute")
    assert (played.actions, played.end_reason) == (("Right",), "token_budget")
    assert played.states == (BOARD, "_PX_O")


def test_answer_that_ends_exactly_at_the_budget_is_executed() -> None:
    played = episode(Talker(RIGHT), response_tokens=1)
    assert (played.actions, played.end_reason) == (("Right",), "token_budget")
    assert played.states == (BOARD, "_PX_O")


def test_opening_beyond_its_limit_is_refused() -> None:
    talker = Talker(RIGHT)
    with refused(TrajectoryError, PUZZLE.puzzle_id, "rollout.prompt_tokens", "20"):
        episode(talker, prompt_tokens=20)
    assert len(talker.requests) == 1


def test_opening_at_its_limit_is_played() -> None:
    talker = Talker(RIGHT)
    episode(talker)
    size = sum(len(message.content.split()) for message in talker.requests[0].messages)
    assert episode(Talker(RIGHT), prompt_tokens=size).end_reason == "solved"
    with pytest.raises(TrajectoryError):
        episode(Talker(RIGHT), prompt_tokens=size - 1)


def test_what_nobody_counts_is_unknown_and_the_episode_goes_on() -> None:
    talker = Talker("well", uncounted=None)
    played = episode(talker, response_tokens=10, prompt_tokens=1)
    assert played.end_reason == "turn_budget"
    assert played.answer_tokens == played.prompt_tokens == (None,) * 6
    assert (played.total_answer_tokens, played.total_prompt_tokens) == (None, None)
    assert {request.max_tokens for request in talker.requests} == {10}


def test_one_turn_without_counts_frees_no_budget() -> None:
    counted, gap = Talker("well"), Talker("well", uncounted=frozenset({2}))
    episode(counted, response_tokens=400, max_answer_tokens=400)
    played = episode(gap, response_tokens=400, max_answer_tokens=400)
    assert played.answer_tokens[2] is None and played.total_answer_tokens is None
    limits = [[request.max_tokens for request in talker.requests] for talker in (counted, gap)]
    assert limits[0][:3] == limits[1][:3] and limits[0][4:] == limits[1][4:]
    assert limits[1][3] == limits[1][2] < 400  # the latest bound that is known


class SlowRoom:
    """An environment that is to be called beside the loop; solved by its second answer."""

    rules = "Say anything."
    is_slow = True

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._num_steps = 0

    def start(self) -> str:
        self.threads.add(threading.get_ident())
        return "begin"

    def state(self) -> str:
        return str(self._num_steps)

    def step(self, answer: str) -> EnvironmentTurn:
        self.threads.add(threading.get_ident())
        self._num_steps += 1
        is_solved = self._num_steps == 2
        turn = make_environment(PUZZLE, turn_budget=2)
        turn.start()
        return replace(
            turn.step(RIGHT),
            state=self.state(),
            end_reason="solved" if is_solved else "",
            reward=float(is_solved),
        )

    def choices(self) -> tuple[str, ...]:
        return ("anything",)

    def close(self) -> None:
        pass


def test_slow_environment_is_called_beside_the_loop() -> None:
    room = SlowRoom()
    played = episode(Talker("a"), environment=room)
    assert (played.states, played.reward) == (("0", "1", "2"), 1.0)
    assert threading.get_ident() not in room.threads


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


def as_counted_by(tokenizer: ChatTokenizer, *answers: str) -> Talker:
    """Return a player that counts exactly as the token path does."""

    def count_prompt(messages: Sequence[Message]) -> int:
        size = len(tokenizer.opening(messages[0].content, messages[1].content))
        for said, heard in zip(messages[2::2], messages[3::2], strict=True):
            size += len(tokenizer.answer(said.content)) + len(tokenizer.observation(heard.content))
        return size

    def split(text: str) -> list[str]:
        return [tokenizer.text([token]) for token in tokenizer.answer(text)]

    return Talker(*answers, count_prompt=count_prompt, split=split)


SAYINGS = st.lists(
    st.sampled_from([RIGHT, "```Left```", "```Up```", "well", "I go to the right: ```Right```"]),
    min_size=1,
    max_size=8,
)


@FIXED
@given(SAYINGS, st.integers(1, 900), st.integers(1, 30))
def test_episode_equals_the_token_paths(
    tokenizer: ChatTokenizer, sayings: list[str], response_tokens: int, max_answer_tokens: int
) -> None:
    budgets = {"response_tokens": response_tokens, "max_answer_tokens": max_answer_tokens}
    spec = EpisodeSpec(step=0, group=0, episode=0, attempt=0, puzzle=PUZZLE, turn_budget=8, seed=11)
    policy = ScriptedPolicy(tokenizer, in_turn(*sayings))
    expected = play(spec, policy, tokenizer, ends_dead=False, **budgets)
    played = episode(as_counted_by(tokenizer, *sayings), turn_budget=8, **budgets)
    if expected.end_reason == "token_budget" and played.end_reason == "truncated":
        # The observation used up the budget, which the messages' player says one answer later.
        assert len(played.actions) == len(expected.actions) + 1
        played = replace(
            played,
            actions=played.actions[:-1],
            effects=played.effects[:-1],
            states=played.states[:-1],
            end_reason="token_budget",
        )
    assert played.actions == expected.actions
    assert played.effects == expected.effects
    assert played.states == expected.states
    assert (played.reward, played.end_reason) == (expected.reward, expected.end_reason)
