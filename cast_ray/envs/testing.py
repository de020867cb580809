"""Checks that every text environment must pass, for use in your environment's tests.

    @pytest.mark.parametrize("check", environment_checks(GuessNumber), ids=str)
    def test_guess_number_is_an_environment_for_cast_ray(check):
        check()

A check returns if all is well, raises AssertionError or CallbackError with a sentence if not, and
``unittest.SkipTest``, which pytest reports as a skip, where it does not apply.
"""

from __future__ import annotations

import random
import unittest
from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from cast_ray.config.tiers import TASKS_TIER
from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.envs.tasks import TaskSet, TextEnvironment
from cast_ray.errors import ConfigError
from cast_ray.games.game import Effect
from cast_ray.games.testing.samples import Check, demand, shown
from cast_ray.games.testing.text_checks import random_texts
from cast_ray.games.text import FENCE

_NUM_TASKS = 5
_ROUNDING = 1e-6


EnvironmentCheck = Check
"""The name by which earlier packages of users import it."""


def environment_checks(kind: type[TextEnvironment]) -> list[Check]:
    """Return all checks of an environment, to be called one by one."""
    return [
        # A check makes its tasks itself, so that one that cannot be made fails it.
        Check(name=name, run=lambda run=run: run(TaskSet(kind.__qualname__, kind)))
        for name, run in CHECKS.items()
    ]


def _check_messages(tasks: TaskSet) -> None:
    """Every message to the policy says something."""
    for task in _some(tasks):
        for text, turn in _played(tasks, task):
            ended = turn and turn.end_reason
            demand(text.strip() or ended, f"task {task}: a message says nothing ({turn})")


def _check_same_again(tasks: TaskSet) -> None:
    """The same task and the same answers give the same texts and rewards.

    Other episodes, and the random numbers of the process, do not matter.
    """
    for task in _some(tasks):
        answers = _answers(tasks, task)
        alone = _played(tasks, task, answers)
        random.seed(task)
        np.random.seed(task)
        again = _played(tasks, task, answers, beside=_episode(tasks, task + 1))
        for first, then in zip_longest(alone, again):
            demand(
                first == then,
                f"task {task}, {shown(' '.join(answers))}: {first!r}, and the next time {then!r}; "
                "draw all that is random from random.Random(task)",
            )


def _check_any_answer(tasks: TaskSet) -> None:
    """Whatever is answered, ``step`` returns a ``Step`` that says something."""
    environment: Environment | None = None
    for text in random_texts(np.random.default_rng(0)):
        for answer in (text, f"{FENCE}{text}{FENCE}"):
            if environment is None:
                environment = _episode(tasks, 0)
                environment.start()
            if environment.step(answer).end_reason:
                environment = None


def _check_rewards(tasks: TaskSet) -> None:
    """The rewards of an episode add up to between 0 and 1."""
    for task in _some(tasks):
        for _, turn in _played(tasks, task):
            demand(
                turn is None or -_ROUNDING <= turn.reward <= 1 + _ROUNDING,
                f"task {task}: the rewards add up to less than 0 or more than 1: {turn}",
            )


def _check_choices(tasks: TaskSet) -> None:
    """What ``choices`` names can be answered, and is the same until then."""
    for task in _some(tasks):
        environment = _episode(tasks, task)
        environment.start()
        choices = _choices(environment)
        if not choices:
            raise unittest.SkipTest("the environment names no choices")
        demand(_choices(environment) == choices, f"task {task}: choices changes without a step")
        for choice in choices:
            environment = _episode(tasks, task)
            environment.start()
            turn = environment.step(f"{FENCE}{choice}{FENCE}")
            demand(
                turn.effect is not Effect.INVALID,
                f"task {task}: choices names {choice!r}, which step does not understand",
            )


CHECKS: dict[str, Callable[[TaskSet], None]] = {
    "messages": _check_messages,
    "same_again": _check_same_again,
    "any_answer": _check_any_answer,
    "rewards": _check_rewards,
    "choices": _check_choices,
}
"""Every check by name; its docstring says what it demands."""


def _some(tasks: TaskSet) -> range:
    return range(min(_NUM_TASKS, len(tasks.puzzles(TASKS_TIER))))


def _episode(tasks: TaskSet, task: int) -> Environment:
    budget = tasks.tiers[TASKS_TIER].turn_budget
    return tasks.environment(f"task {task}", turn_budget=budget)


def _choices(environment: Environment) -> tuple[str, ...]:
    try:
        return environment.choices()
    except ConfigError:
        return ()


def _answers(tasks: TaskSet, task: int) -> list[str]:
    """Return answers of an episode: choices at random, and now and then what is none."""
    rng = random.Random(task)
    environment, answers, ended = _episode(tasks, task), [], False
    environment.start()
    while not ended:
        choices = _choices(environment)
        action = rng.choice(choices) if choices and rng.random() < 0.9 else "?"
        answers.append(f"{FENCE}{action}{FENCE}")
        ended = bool(environment.step(answers[-1]).end_reason)
    environment.close()
    return answers


def _played(
    tasks: TaskSet,
    task: int,
    answers: Sequence[str] | None = None,
    *,
    beside: Environment | None = None,
) -> list[tuple[str, EnvironmentTurn | None]]:
    """Return the messages to the policy, each with the turn that led to it.

    Args:
        tasks: of the environment.
        task: its number.
        answers: to give; None = those of ``_answers``.
        beside: another episode, started and stepped once before the first answer.
    """
    environment = _episode(tasks, task)
    found: list[tuple[str, EnvironmentTurn | None]] = [(environment.start(), None)]
    if beside:
        beside.start()
        beside.step("?")
    for answer in _answers(tasks, task) if answers is None else answers:
        turn = environment.step(answer)
        found.append((turn.message, turn))
        if turn.end_reason:
            break
    environment.close()
    return found
