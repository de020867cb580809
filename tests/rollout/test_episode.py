"""Episodes played by a scripted policy: tokens, masks, budgets and seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ModelError, TrajectoryError
from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle, puzzle_id_of
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.episode import EpisodeSpec, Sampling
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.rollout.specs import (
    conversation_limit,
    evaluation_sampling,
    model_limit,
    training_sampling,
    with_model_limit,
)
from cast_ray.rollout.trajectory import Trajectory
from cast_ray.seeds import derive_seed
from tests.support.refusals import refused
from tests.support.rooms import FIXED
from tests.support.scripted import GAME, LOGPROB, ScriptedPolicy, build_test_policy, in_turn, play

BOARD = "P_X_O"
RIGHT, LEFT = "```Right```", "```Left```"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


def spec(*, board: str = BOARD, turn_budget: int = 6, seed: int = 11) -> EpisodeSpec:
    puzzle = Puzzle(
        game="sokoban",
        tier="mini",
        puzzle_id=puzzle_id_of(GAME, GAME.decode(board)),
        board=board,
        cost_to_go=3,
        cost_status="exact",
        seed=0,
    )
    return EpisodeSpec(
        step=1, group=2, episode=3, attempt=0, puzzle=puzzle, turn_budget=turn_budget, seed=seed
    )


def played(tokenizer: ChatTokenizer, *answers: str, **settings: int) -> Trajectory:
    return play(spec(), ScriptedPolicy(tokenizer, in_turn(*answers)), tokenizer, **settings)


def texts_between(tokenizer: ChatTokenizer, trajectory: Trajectory) -> list[str]:
    """Return what the environment said after each turn but the last, as text."""
    gaps = zip(trajectory.turn_ends, trajectory.turn_starts[1:], strict=False)
    return [tokenizer.text(trajectory.token_ids[end:start]) for end, start in gaps]


def test_episode_is_recorded_turn_by_turn(tokenizer: ChatTokenizer) -> None:
    trajectory = played(tokenizer, RIGHT, "```Up```", "well", RIGHT)
    assert trajectory.answers == (RIGHT, "```Up```", "well", RIGHT, RIGHT)
    assert trajectory.actions == ("Right", "Up", "", "Right", "Right")
    assert trajectory.effects == ("changed", "ineffective", "invalid", "changed", "changed")
    assert trajectory.states == (BOARD, "_PX_O", "_PX_O", "_PX_O", "__PXO", "___P*")
    assert (trajectory.end_reason, trajectory.reward) == ("solved", 1.0)
    assert (trajectory.step, trajectory.group, trajectory.episode) == (1, 2, 3)


def test_mask_and_logprobs_cover_exactly_the_answers(tokenizer: ChatTokenizer) -> None:
    trajectory = played(tokenizer, RIGHT, "nonsense", RIGHT)
    spans = list(zip(trajectory.turn_starts, trajectory.turn_ends, strict=True))
    inside = {token for start, end in spans for token in range(start, end)}
    expected = [int(token in inside) for token in range(len(trajectory.token_ids))]
    assert list(trajectory.loss_mask) == expected
    assert list(trajectory.rollout_logprobs) == [LOGPROB * one for one in expected]


def test_spans_hold_the_engines_own_tokens_end_of_turn_included(tokenizer: ChatTokenizer) -> None:
    trajectory = played(tokenizer, "nonsense", RIGHT)
    spans = zip(trajectory.turn_starts, trajectory.turn_ends, strict=True)
    answers = [list(trajectory.token_ids[start:end]) for start, end in spans]
    assert answers == [tokenizer.answer(text) for text in ("nonsense", RIGHT, RIGHT, RIGHT)]


def test_each_request_is_the_whole_conversation_so_far(tokenizer: ChatTokenizer) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn("nonsense", RIGHT))
    trajectory = play(spec(), policy, tokenizer)
    asked = [len(request.token_ids) for request in policy.requests]
    assert asked == list(trajectory.turn_starts)
    for request in policy.requests:
        assert request.token_ids == trajectory.token_ids[: len(request.token_ids)]


def test_text_between_turns_holds_feedback_board_and_budget(tokenizer: ChatTokenizer) -> None:
    first, second = texts_between(tokenizer, played(tokenizer, "```Up```", RIGHT, RIGHT, RIGHT))[:2]
    assert "Up: a wall is in the way.\nSize: 1 x 5\n" in first
    assert "\nBoard:\nP_X_O\nSteps left: 5" in first
    assert "a wall" not in second and "_PX_O\nSteps left: 4" in second


def test_conversation_ends_with_the_last_answer(tokenizer: ChatTokenizer) -> None:
    trajectory = played(tokenizer, RIGHT)
    assert trajectory.turn_ends[-1] == len(trajectory.token_ids)


def test_answer_that_is_cut_off_is_not_executed(tokenizer: ChatTokenizer) -> None:
    # One token short of its end-of-turn token: the text is whole, and would solve the room.
    policy = ScriptedPolicy(tokenizer, in_turn(RIGHT))
    limit = len(tokenizer.answer(RIGHT)) - 1
    trajectory = play(spec(board="PXO"), policy, tokenizer, max_answer_tokens=limit)
    assert trajectory.answers == (RIGHT,)
    assert (trajectory.actions, trajectory.effects) == (("",), (Effect.TRUNCATED.value,))
    assert trajectory.states == ("PXO", "PXO")
    assert (trajectory.end_reason, trajectory.reward) == ("truncated", 0.0)
    assert sum(trajectory.loss_mask) == limit


def cut_off(tokenizer: ChatTokenizer, answer: str, *, board: str) -> Trajectory:
    """Play an answer of which only the end-of-turn token is missing, with its action executed."""
    policy = ScriptedPolicy(tokenizer, in_turn(answer))
    limit = len(tokenizer.answer(answer)) - 1
    settings = {"max_answer_tokens": limit, "truncated": "execute"}
    return play(spec(board=board), policy, tokenizer, **settings)


def test_answer_that_is_cut_off_can_be_executed_and_earn_the_reward(
    tokenizer: ChatTokenizer,
) -> None:
    trajectory = cut_off(tokenizer, RIGHT, board="PXO")
    assert (trajectory.actions, trajectory.effects) == (("Right",), (Effect.CHANGED.value,))
    assert trajectory.states == ("PXO", "_P*")
    assert (trajectory.end_reason, trajectory.reward) == ("solved", 1.0)


@pytest.mark.parametrize(
    ("answer", "action", "effect"),
    [
        (RIGHT, "Right", Effect.CHANGED),
        ("```Up```", "Up", Effect.INEFFECTIVE),
        ("```Rig", "", Effect.INVALID),
    ],
)
def test_executed_answer_that_is_cut_off_ends_the_episode_whatever_it_did(
    tokenizer: ChatTokenizer, answer: str, action: str, effect: Effect
) -> None:
    trajectory = cut_off(tokenizer, answer, board=BOARD)
    assert (trajectory.actions, trajectory.effects) == ((action,), (effect.value,))
    assert (trajectory.end_reason, trajectory.reward) == ("token_budget", 0.0)
    assert trajectory.turn_ends[-1] == len(trajectory.token_ids)


def test_executed_answer_that_is_cut_off_can_end_in_a_deadlock(tokenizer: ChatTokenizer) -> None:
    trajectory = cut_off(tokenizer, RIGHT, board="OPX_")
    assert (trajectory.end_reason, trajectory.reward) == ("deadlock", 0.0)


def test_whole_answers_are_played_on_where_cut_off_ones_are_executed(
    tokenizer: ChatTokenizer,
) -> None:
    whole = play(spec(), ScriptedPolicy(tokenizer, in_turn(RIGHT)), tokenizer, truncated="execute")
    skipping = played(tokenizer, RIGHT)
    assert whole.states == skipping.states
    assert whole.token_ids == skipping.token_ids


@pytest.mark.parametrize("sampling_of", [training_sampling, evaluation_sampling])
@pytest.mark.parametrize("truncated", ["skip", "execute"])
def test_configuration_says_what_becomes_of_cut_off_answers(
    sampling_of: Callable[[TrainConfig], Sampling], truncated: str
) -> None:
    config = load_config(None, [f"rollout.truncated={truncated}"])
    assert sampling_of(config).truncated == truncated


def test_answer_that_just_ends_in_time_is_executed(tokenizer: ChatTokenizer) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn(RIGHT))
    limit = len(tokenizer.answer(RIGHT))
    trajectory = play(spec(board="PXO"), policy, tokenizer, max_answer_tokens=limit)
    assert (trajectory.end_reason, trajectory.reward) == ("solved", 1.0)


def test_token_budget_cuts_the_answer_short(tokenizer: ChatTokenizer) -> None:
    budget = len(tokenizer.answer(RIGHT)) - 1
    trajectory = played(tokenizer, RIGHT, response_tokens=budget)
    assert trajectory.end_reason == "truncated"
    assert sum(trajectory.loss_mask) == budget


def test_turn_counts_when_only_the_next_observation_does_not_fit(tokenizer: ChatTokenizer) -> None:
    whole = played(tokenizer, RIGHT)
    up_to_second_answer = whole.turn_starts[1] - whole.turn_starts[0]
    trajectory = played(tokenizer, RIGHT, response_tokens=up_to_second_answer)
    assert (trajectory.end_reason, trajectory.reward) == ("token_budget", 0.0)
    assert trajectory.states == (BOARD, "_PX_O")
    assert trajectory.effects == ("changed",)
    assert trajectory.token_ids == whole.token_ids[: whole.turn_ends[0]]


def test_one_token_more_than_the_observation_is_an_answer_again(tokenizer: ChatTokenizer) -> None:
    whole = played(tokenizer, RIGHT)
    budget = whole.turn_starts[1] - whole.turn_starts[0] + 1
    trajectory = played(tokenizer, RIGHT, response_tokens=budget)
    assert (trajectory.end_reason, len(trajectory.answers)) == ("truncated", 2)
    assert len(trajectory.token_ids) - trajectory.turn_starts[0] == budget


def test_solving_turn_counts_even_when_nothing_more_would_fit(tokenizer: ChatTokenizer) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn(RIGHT))
    budget = len(tokenizer.answer(RIGHT))
    trajectory = play(spec(board="PXO"), policy, tokenizer, response_tokens=budget)
    assert (trajectory.end_reason, trajectory.reward) == ("solved", 1.0)


def test_turn_budget_ends_the_episode_without_reward(tokenizer: ChatTokenizer) -> None:
    trajectory = played(tokenizer, "```Up```")
    assert (trajectory.end_reason, trajectory.reward) == ("turn_budget", 0.0)
    assert len(trajectory.answers) == 6


@pytest.mark.parametrize(
    ("ends_dead", "end"), [(True, ("deadlock", 1)), (False, ("turn_budget", 6))]
)
def test_deadlock_ends_the_episode_only_if_wanted(
    tokenizer: ChatTokenizer, ends_dead: bool, end: tuple[str, int]
) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn(RIGHT))
    trajectory = play(spec(board="OPX_"), policy, tokenizer, ends_dead=ends_dead)
    assert (trajectory.end_reason, len(trajectory.answers)) == end
    assert trajectory.reward == 0.0


def test_prompt_beyond_its_budget_is_refused(tokenizer: ChatTokenizer) -> None:
    size = played(tokenizer, RIGHT).turn_starts[0]
    with pytest.raises(TrajectoryError, match=rf"{size} tokens.*rollout\.prompt_tokens"):
        played(tokenizer, RIGHT, prompt_tokens=size - 1)
    assert played(tokenizer, RIGHT, prompt_tokens=size).reward == 1.0


def test_conversation_limit_ends_the_episode_before_the_engine_would_refuse_it(
    tokenizer: ChatTokenizer,
) -> None:
    whole = played(tokenizer, RIGHT)
    limit = whole.turn_starts[1]  # the prompt of the second turn would leave no token
    policy = ScriptedPolicy(tokenizer, in_turn(RIGHT))
    trajectory = play(spec(), policy, tokenizer, conversation_tokens=limit)
    assert (trajectory.end_reason, trajectory.reward) == ("token_budget", 0.0)
    assert trajectory.token_ids == whole.token_ids[: whole.turn_ends[0]]
    more = play(spec(), policy, tokenizer, conversation_tokens=limit + 1)
    assert (more.end_reason, len(more.token_ids)) == ("truncated", limit + 1)
    assert all(len(ask.token_ids) + ask.max_tokens <= limit + 1 for ask in policy.requests)


def test_prompt_that_leaves_no_token_for_an_answer_is_refused(tokenizer: ChatTokenizer) -> None:
    size = played(tokenizer, RIGHT).turn_starts[0]
    with pytest.raises(TrajectoryError, match=rf"{size} tokens.*engine\.max_model_len"):
        played(tokenizer, RIGHT, conversation_tokens=size)
    assert played(tokenizer, RIGHT, conversation_tokens=size + 1).end_reason == "truncated"


def test_every_end_of_sequence_token_ends_an_answer(tokenizer: ChatTokenizer) -> None:
    scripted = ScriptedPolicy(tokenizer, in_turn(RIGHT))
    assert len(tokenizer.end_ids) == 1
    tokenizer.end_ids = (*tokenizer.end_ids, 0)

    async def policy(request: GenerateRequest, lane: Lane) -> Completion:
        assert request.stop_token_ids == tokenizer.end_ids
        completion = await scripted(request, lane)
        return replace(completion, token_ids=(*completion.token_ids[:-1], 0))

    try:
        trajectory = play(spec(), policy, tokenizer)
    finally:
        tokenizer.end_ids = tokenizer.end_ids[:1]
    assert (trajectory.end_reason, trajectory.answers) == ("solved", (RIGHT,) * 3)
    assert all(trajectory.token_ids[end - 1] == 0 for end in trajectory.turn_ends)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"text_config": {"max_position_embeddings": 512}, "model_max_length": 9}, 512),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": None, "text_config": None}, None),
        ({}, None),
    ],
)
def test_engine_gets_the_models_limit_or_the_budgets(
    tmp_path: Path, config: dict[str, object], limit: int | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert model_limit(tmp_path) == limit
    both = 2048 + 16384
    resolved = with_model_limit(TrainConfig(), tmp_path)
    assert resolved.engine.max_model_len == conversation_limit(resolved) == min(limit or both, both)
    assert training_sampling(resolved).conversation_tokens == conversation_limit(resolved)
    given_len = load_config(None, ["engine.max_model_len=300"])
    assert conversation_limit(with_model_limit(given_len, tmp_path)) == 300


@pytest.mark.parametrize("content", ["{", "[]", '{"max_position_embeddings": "many"}'])
def test_damaged_configuration_of_a_model_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with refused(ModelError, str(tmp_path / "config.json")):
        model_limit(tmp_path)


def test_every_turn_has_a_seed_of_its_own_that_follows_from_the_episodes(
    tokenizer: ChatTokenizer,
) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn("nonsense"))
    trajectory = play(spec(seed=5), policy, tokenizer)
    assert list(trajectory.turn_seeds) == [derive_seed(5, "turn", turn) for turn in range(6)]
    assert [request.seed for request in policy.requests] == list(trajectory.turn_seeds)
    assert len(set(trajectory.turn_seeds)) == 6


def test_every_token_of_the_policy_has_its_weight_version_and_no_other(
    tokenizer: ChatTokenizer,
) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn(RIGHT), version=7)
    trajectory = play(spec(), policy, tokenizer)
    assert trajectory.weight_versions == tuple(7 if one else -1 for one in trajectory.loss_mask)


def test_an_update_within_an_answer_is_kept_where_it_happened(tokenizer: ChatTokenizer) -> None:
    scripted = ScriptedPolicy(tokenizer, in_turn(RIGHT))

    async def policy(request: GenerateRequest, lane: int) -> Completion:
        completion = await scripted(request, lane)
        rest = len(completion.token_ids) - 2
        return replace(completion, weight_versions=(3, 3) + (4,) * rest)

    trajectory = play(spec(), policy, tokenizer)
    assert len(trajectory.answers) == 3
    for start, end in zip(trajectory.turn_starts, trajectory.turn_ends, strict=True):
        assert trajectory.weight_versions[start:end] == (3, 3) + (4,) * (end - start - 2)


@FIXED
@given(st.lists(st.text(max_size=12) | st.sampled_from([RIGHT, LEFT]), min_size=1, max_size=6))
def test_any_answers_give_a_record_that_fits_together(
    tokenizer: ChatTokenizer, answers: list[str]
) -> None:
    trajectory = played(tokenizer, *answers, response_tokens=400)
    num_turns, num_tokens = len(trajectory.answers), len(trajectory.token_ids)
    assert 1 <= num_turns <= 6
    assert len(trajectory.states) == num_turns + 1
    assert len(trajectory.loss_mask) == len(trajectory.rollout_logprobs) == num_tokens
    spans = zip(trajectory.turn_starts, trajectory.turn_ends, strict=True)
    bounds = [0, *(bound for span in spans for bound in span)]
    assert all(before < after for before, after in pairwise(bounds))
    assert bounds[-1] == num_tokens
    assert num_tokens - trajectory.turn_starts[0] <= 400
    assert trajectory.reward == (trajectory.end_reason == "solved")
