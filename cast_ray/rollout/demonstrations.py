"""Imperfect play as conversations, for the supervised warm start."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.envs.environment import Environment
from cast_ray.envs.text_env import TextEnv
from cast_ray.games.game import Game
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer, Conversation
from cast_ray.rollout.trajectory import NOT_THE_POLICY

DEMONSTRATION_SCHEMA = pa.schema(
    [
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.uint8()), nullable=False),
    ]
)


def demonstrate(
    puzzle: Puzzle,
    *,
    game: Game[Any],  # Any: each game has a state type of its own
    good_actions: Callable[[Hashable], Sequence[str]],
    mistakes: Callable[[Hashable], Sequence[str]],
    is_dead: Callable[[Hashable], bool] | None,
    turn_budget: int,
    mistake_probability: float,
    with_thoughts: bool,
    tokenizer: ChatTokenizer,
    rng: np.random.Generator,
) -> Conversation:
    """Play one puzzle as the solver would, with mistakes, and return the conversation.

    Args:
        puzzle: the board to start from.
        game: its rules.
        good_actions: a state's actions to choose from (``SolverEntry.demonstrated``); () if there
            is no advice, then a mistake is made.
        mistakes: the alternatives (``SolverEntry.demonstrated_mistakes``).
        is_dead: ends the demonstration where an episode would end; None continues.
        turn_budget: most turns.
        mistake_probability: of each turn.
        with_thoughts: whether the game's ``thought`` comes before each action.
        tokenizer: writes the text as token ids.
        rng: decides when and which.
    """
    env = TextEnv(game, game.decode(puzzle.board), turn_budget=turn_budget, is_dead=is_dead)

    def answer() -> str:
        choices = good_actions(env.position)
        if not choices or rng.random() < mistake_probability:
            choices = mistakes(env.position)
        action = choices[int(rng.integers(len(choices)))]
        return demonstrated_answer(game, env.position, action, with_thoughts=with_thoughts)

    return _conversation(env, answer, tokenizer)


def demonstrate_choices(
    environment: Environment, *, tokenizer: ChatTokenizer, rng: np.random.Generator
) -> Conversation:
    """Play one episode at random among an environment's choices, and return the conversation.

    What is shown is no good play but how an answer is written.

    Raises:
        ConfigError: the environment does not list its choices.
    """

    def answer() -> str:
        choices = environment.choices()
        return f"```{choices[int(rng.integers(len(choices)))]}```"

    with closing(environment):
        return _conversation(environment, answer, tokenizer)


def _conversation(
    environment: Environment, answer: Callable[[], str], tokenizer: ChatTokenizer
) -> Conversation:
    first = environment.start()
    talk = Conversation.start(tokenizer.opening(environment.rules, first))
    while True:
        text = answer()
        ids = tokenizer.answer(text)
        talk.append_answer(ids, [0.0] * len(ids), [NOT_THE_POLICY] * len(ids))
        turn = environment.step(text)
        if turn.end_reason:
            return talk
        talk.append_observation(tokenizer.observation(turn.message))


def demonstrated_answer(
    game: Game[Any],  # Any: as above
    state: Any,
    action: str,
    *,
    with_thoughts: bool,
) -> str:
    """Return an answer that names an action, after a thought if it should have one."""
    thought = game.thought(state) if with_thoughts else ""
    return f"{thought}\n```{action}```" if thought else f"```{action}```"


def to_demonstration_table(conversations: list[Conversation]) -> pa.Table:
    """Return conversations as one table of ``DEMONSTRATION_SCHEMA``."""
    return pa.Table.from_pydict(
        {
            "token_ids": [talk.token_ids for talk in conversations],
            "loss_mask": [talk.loss_mask for talk in conversations],
        },
        schema=DEMONSTRATION_SCHEMA,
    )
