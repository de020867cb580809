"""The checks for environments of the user's: good ones pass, and each fault trips its own."""

from __future__ import annotations

import random
import unittest
from typing import ClassVar

import pytest

from cast_ray.envs.tasks import Step, TextEnvironment
from cast_ray.envs.testing import CHECKS, Check, environment_checks
from tests.extensions.guess_number import GuessNumber


class Coin(TextEnvironment):
    """Call a coin; without a fault."""

    rules, turn_budget, num_tasks = "Call a coin: heads or tails.", 3, 50

    def reset(self, task: int) -> str:
        self.draws = random.Random(task)
        return "Call."

    def step(self, answer: str) -> Step:
        right = self.draws.random() < 0.5
        valid = "heads" in answer or "tails" in answer
        return Step(observation="Right." if right else "Wrong.", reward=right / 3, is_valid=valid)

    def choices(self) -> tuple[str, ...]:
        return ("heads", "tails")


class Mute(Coin):
    def reset(self, task: int) -> str:
        super().reset(task)
        return " "


class Restless(Coin):
    def step(self, answer: str) -> Step:
        return Step(observation=str(random.random()))


class Shared(Coin):
    draws: ClassVar[random.Random]

    def reset(self, task: int) -> str:
        Shared.draws = random.Random(task)
        return "Call."


class Fragile(Coin):
    def step(self, answer: str) -> Step:
        return Step(observation=answer.encode().decode("ascii"))


class Generous(Coin):
    def step(self, answer: str) -> Step:
        return Step(observation="Right.", reward=0.4)


class Strict(Coin):
    def step(self, answer: str) -> Step:
        return Step(observation="Heads!", is_valid="heads" in answer)


class Silent(Coin):
    def choices(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize("kind", [GuessNumber, Coin])
def test_environment_without_a_fault_passes(kind: type[TextEnvironment]) -> None:
    checks = environment_checks(kind)
    assert [str(check) for check in checks] == list(CHECKS)
    for check in checks:
        check()


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (Mute, "messages", "task 0.*says nothing"),
        (Restless, "same_again", r"task 0.*draw all that is random from random\.Random\(task\)"),
        (Shared, "same_again", "Call|Right|Wrong.*and the next time"),
        (Fragile, "any_answer", r"Fragile\.step failed: Unicode"),
        (Generous, "rewards", r"task 0.*more than 1.*reward=1\.2"),
        (Strict, "choices", "'tails', which step does not understand"),
    ],
)
def test_each_fault_trips_its_own_check(
    kind: type[TextEnvironment], name: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        _check(kind, name)()
    others = [check for check in environment_checks(kind) if check.name != name]
    for check in others:
        check()


def _check(kind: type[TextEnvironment], name: str) -> Check:
    (found,) = (check for check in environment_checks(kind) if check.name == name)
    return found


def test_choices_are_skipped_where_there_are_none() -> None:
    with pytest.raises(unittest.SkipTest, match="names no choices"):
        _check(Silent, "choices")()
