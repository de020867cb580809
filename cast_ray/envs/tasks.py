"""Environments of the user's own: a class that reads and writes texts, without a solver.

``game=path/file.py:Class``, ``package.module:Class``, or an entry point of the group
``cast_ray.environments`` (docs/add_an_environment.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import ParamSpec, TypeVar

from cast_ray.config.tiers import TASKS_TIER
from cast_ray.envs.environment import BenchmarkTier, Environment
from cast_ray.envs.text_env import LOST, SOLVED, BudgetedEpisode
from cast_ray.errors import CallbackError, ConfigError
from cast_ray.functions import short_name, told
from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.text import last_fenced_block
from cast_ray.games.wording import GameWording

_SHOWN_ACTION = 60
_ROUNDING = 1e-6  # of a sum of shares that makes 1

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What an answer led to."""

    observation: str
    """The next user message; not shown if the episode is done."""
    reward: float = 0.0
    """Of this turn, finite. The sum over an episode is its ``reward``; let it lie between 0 and 1:
    an episode that is done with 1 or more is solved."""
    done: bool = False
    """Whether the episode is over; else it ends after ``turn_budget`` turns."""
    action: str = ""
    """What was understood, for reports; empty = the last fenced block, or the whole answer."""
    is_valid: bool = True
    """False = no action could be read; counted in the metrics."""


class TextEnvironment(ABC):
    """What a user derives an environment from. One instance plays one episode.

    The same task and the same answers must lead to the same texts and rewards: a group plays one
    task several times, and ``cast-ray replay`` plays all of it again.
    """

    rules: str
    """The system prompt."""
    turn_budget: int = 10
    """Most turns of an episode."""
    num_tasks: int = 10_000
    """Tasks are numbered from 0; training, validation and held-out sets share none."""

    @abstractmethod
    def reset(self, task: int) -> str:
        """Begin a task, which is also the seed of all that is random in it.

        Returns:
            The first user message.
        """

    @abstractmethod
    def step(self, answer: str) -> Step:
        """Carry out what the policy wrote, whatever it is."""

    def choices(self) -> tuple[str, ...]:
        """Return what could be answered now, for the player ``random``; empty = not known."""
        return ()

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Release what the episode holds."""


class TaskSet:
    """The tasks of a ``TextEnvironment`` as a ``Benchmark``."""

    wording = GameWording()

    def __init__(self, name: str, make: Callable[[], object]) -> None:
        """Check the class.

        Args:
            name: of the game, as in the configuration and the trajectories.
            make: returns a new episode's instance.

        Raises:
            ConfigError: it is no ``TextEnvironment``, or its attributes are wrong.
            CallbackError: it cannot be made.
        """
        self.name = name
        self._make = make
        first = self._instance()
        short = short_name(name)
        if not isinstance(getattr(first, "rules", None), str) or not first.rules.strip():
            raise ConfigError(f"{short}.rules must be the text of the system prompt")
        for attribute in ("turn_budget", "num_tasks"):
            value = getattr(first, attribute)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{short}.{attribute} must be a number >= 1, got {value!r}")
        self._num_tasks = first.num_tasks
        tier = BenchmarkTier(name=TASKS_TIER, turn_budget=first.turn_budget)
        self.tiers: Mapping[str, BenchmarkTier] = {TASKS_TIER: tier}

    def puzzles(self, tier: str) -> list[Puzzle]:
        """Return all tasks, by number."""
        return [
            Puzzle(
                game=self.name,
                tier=tier,
                puzzle_id=sha256(f"{short_name(self.name)} {task}".encode()).hexdigest()[:16],
                board=f"task {task}",
                seed=task,
            )
            for task in range(self._num_tasks)
        ]

    def environment(self, board: str, *, turn_budget: int) -> Environment:
        """Return an episode of the task that a board names."""
        task = int(board.removeprefix("task "))
        return _TaskEpisode(self.name, self._instance(), task, turn_budget=turn_budget)

    def _instance(self) -> TextEnvironment:
        found = called(self.name, "__init__", self._make)
        if not isinstance(found, TextEnvironment):
            raise ConfigError(
                f"game={self.name} is of type {type(found).__name__}: derive it from "
                "cast_ray.envs.tasks.TextEnvironment"
            )
        return found


class _TaskEpisode(BudgetedEpisode):
    """An episode; what the user's class does wrong is told with its file and line."""

    is_slow = True  # nothing is known of its speed

    def __init__(
        self, name: str, environment: TextEnvironment, task: int, *, turn_budget: int
    ) -> None:
        super().__init__(turn_budget=turn_budget)
        self.rules = environment.rules
        self._name, self._environment, self._task = name, environment, task
        self._step = Step(observation="")
        self._total = 0.0

    def state(self) -> str:
        """Return the latest observation."""
        return self._step.observation

    def choices(self) -> tuple[str, ...]:
        """Return what the environment says.

        Raises:
            ConfigError: it does not say anything.
        """
        found = tuple(called(self._name, "choices", self._environment.choices))
        if not found:
            raise ConfigError(
                f"{short_name(self._name)} has no choices to play at random: give it a method "
                "choices, or play with a model"
            )
        return found

    def close(self) -> None:
        """See ``Environment``."""
        called(self._name, "close", self._environment.close)

    def _begin(self) -> None:
        text = called(self._name, "reset", self._environment.reset, self._task)
        if not isinstance(text, str):
            raise self._wrong("reset", text, "a text")
        self._step, self._total = Step(observation=text), 0.0

    def _carry_out(self, answer: str) -> tuple[str, Effect, str]:
        step = called(self._name, "step", self._environment.step, answer)
        if not isinstance(step, Step) or not isinstance(step.observation, str):
            raise self._wrong("step", step, "a cast_ray.envs.tasks.Step with a text")
        if not isinstance(step.reward, int | float) or not math.isfinite(step.reward):
            raise self._wrong("step", step, "a reward that is a finite number")
        self._step, self._total = step, self._total + step.reward
        shown = step.action or last_fenced_block(answer) or answer
        effect = Effect.CHANGED if step.is_valid else Effect.INVALID
        return " ".join(shown.split())[:_SHOWN_ACTION], effect, ""

    def _ending(self) -> tuple[str, float]:
        end = (SOLVED if self._total > 1 - _ROUNDING else LOST) if self._step.done else ""
        return end, float(self._total)

    def _shown(self) -> list[str]:
        return [self._step.observation]

    def _message(self, feedback: str) -> str:
        return self._step.observation

    def _wrong(self, method: str, value: object, wanted: str) -> CallbackError:
        kind = type(self._environment)
        return CallbackError(
            f"{short_name(self._name)}.{method} ({kind.__module__}) must return {wanted}, got "
            f"{value!r:.200}"
        )


def called(
    name: str, method: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Return what a method of a user's environment returns.

    Raises:
        CallbackError: it raised something; the message has file and line.
    """
    try:
        return function(*args, **kwargs)
    except CallbackError:
        raise
    except Exception as error:
        raise CallbackError(f"{short_name(name)}.{method} failed: {told(error)}") from error
