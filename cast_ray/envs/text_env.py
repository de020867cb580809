"""Episodes in texts: a turn budget, the messages, and the episode of a game.

``TextEnv`` knows no tokens and no solver; a function says which states are dead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic

from cast_ray.envs.environment import EnvironmentTurn
from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, Game, ParseFailure, StateT, Status

SOLVED, LOST, DEADLOCK, TURN_BUDGET = "solved", "lost", "deadlock", "turn_budget"


def refuse_decided(game: Game[StateT], state: StateT) -> None:
    """Check that an episode may begin in a state.

    Raises:
        PuzzleError: the game is already decided in it.
    """
    status = game.status(state)
    if status is not Status.PLAYING:
        raise PuzzleError(f"the board is already {status.value}: begin with an open one")


class BudgetedEpisode(ABC):
    """An ``Environment`` in which every turn of any kind uses one step of a budget."""

    is_slow = False

    def __init__(self, *, turn_budget: int) -> None:
        """Prepare an episode that begins with ``start``.

        Args:
            turn_budget: turns per episode, >= 1.
        """
        if turn_budget < 1:
            raise ValueError(f"turn_budget must be >= 1, got {turn_budget}")
        self._turn_budget = turn_budget
        self._steps_left = 0

    def start(self) -> str:
        """See ``Environment``; also begins again."""
        self._begin()
        self._steps_left = self._turn_budget
        return self._message("")

    def step(self, answer: str) -> EnvironmentTurn:
        """See ``Environment``.

        Raises:
            RuntimeError: there is no episode, or it has ended.
        """
        if not self._steps_left:
            raise RuntimeError("the episode has ended or never began: call start first")
        action, effect, feedback = self._carry_out(answer)
        self._steps_left -= 1
        end_reason, reward = self._ending()
        if not end_reason and not self._steps_left:
            end_reason = TURN_BUDGET
        if end_reason:
            self._steps_left = 0
        return EnvironmentTurn(
            action=action,
            effect=effect,
            state=self.state(),
            feedback=feedback,
            message="" if end_reason else self._message(feedback),
            end_reason=end_reason,
            reward=reward,
        )

    def close(self) -> None:  # noqa: B027  most episodes hold nothing
        """See ``Environment``."""

    @abstractmethod
    def state(self) -> str:
        """See ``Environment``."""

    @abstractmethod
    def _begin(self) -> None:
        """Go to the start."""

    @abstractmethod
    def _carry_out(self, answer: str) -> tuple[str, Effect, str]:
        """Return an answer's action, empty if none, its effect, and a sentence if it had none."""

    @abstractmethod
    def _ending(self) -> tuple[str, float]:
        """Return why the episode ends in the present state, and its reward; empty and 0 if not."""

    @abstractmethod
    def _shown(self) -> list[str]:
        """Return what the next user message says of the present state."""

    def _message(self, feedback: str) -> str:
        """Return the feedback line, if any, what is shown, and the steps left."""
        lines = [feedback] if feedback else []
        return "\n".join([*lines, *self._shown(), f"Steps left: {self._steps_left}"])


class TextEnv(BudgetedEpisode, Generic[StateT]):
    """An episode of a game."""

    def __init__(
        self,
        game: Game[StateT],
        start: StateT,
        *,
        turn_budget: int,
        is_dead: Callable[[StateT], bool] | None = None,
    ) -> None:
        """Prepare an episode that begins with ``start``.

        Args:
            game: the rules.
            start: the state in which it begins.
            turn_budget: turns per episode, >= 1.
            is_dead: returns whether a state can no longer be won, which ends the episode; None =
                play on.
        """
        super().__init__(turn_budget=turn_budget)
        self.rules = game.rules
        self.position = start
        """The present state."""
        self._game = game
        self._start = start
        self._is_dead = is_dead

    def state(self) -> str:
        """See ``Environment``."""
        return self._game.encode(self.position)

    def choices(self) -> tuple[str, ...]:
        """Return the actions that change the state; where none does, all that have a name."""
        return self._game.scored_actions(self.position) or self._game.actions(self.position)

    def _begin(self) -> None:
        """Go to the start.

        Raises:
            PuzzleError: the game is already decided in it.
        """
        refuse_decided(self._game, self._start)
        self.position = self._start

    def _carry_out(self, answer: str) -> tuple[str, Effect, str]:
        action = self._game.parse(answer)
        if isinstance(action, ParseFailure):
            return "", Effect.INVALID, action.feedback
        transition = self._game.apply(self.position, action)
        self.position = transition.state
        return action, transition.effect, transition.feedback

    def _ending(self) -> tuple[str, float]:
        status = self._game.status(self.position)
        if status is Status.WON:
            return SOLVED, 1.0
        if status is Status.LOST:
            return LOST, 0.0
        is_dead = self._is_dead is not None and self._is_dead(self.position)
        return DEADLOCK if is_dead else "", 0.0

    def _shown(self) -> list[str]:
        return [self._game.observe(self.position)]
