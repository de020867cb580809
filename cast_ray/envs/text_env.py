"""The text environment: one puzzle, one policy, a turn budget, and the messages between them.

It knows no tokens and no solver; a function says which states are dead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, Game, ParseFailure, StateT, Status, Transition

SOLVED, LOST, DEADLOCK, TURN_BUDGET = "solved", "lost", "deadlock", "turn_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult(Generic[StateT]):
    """What one answer led to."""

    action: str
    """Canonical spelling; empty where none could be read."""
    effect: Effect
    state: StateT
    """The state after the turn."""
    feedback: str
    """One sentence about an action without effect; empty when the state changed."""
    message: str
    """The next user message; empty when the episode has ended."""
    end_reason: str
    """``SOLVED``, ``LOST``, ``DEADLOCK`` or ``TURN_BUDGET``; empty while the episode continues."""


def refuse_decided(game: Game[StateT], state: StateT) -> None:
    """Check that an episode may begin in a state.

    Raises:
        PuzzleError: the game is already decided in it.
    """
    status = game.status(state)
    if status is not Status.PLAYING:
        raise PuzzleError(f"the board is already {status.value}: begin with an open one")


class TextEnv(Generic[StateT]):
    """One episode at a time. Every turn of any kind uses one step of the budget."""

    def __init__(
        self,
        game: Game[StateT],
        *,
        turn_budget: int,
        is_dead: Callable[[StateT], bool] | None = None,
    ) -> None:
        """Prepare an environment; call ``reset`` next.

        Args:
            game: the rules.
            turn_budget: turns per episode, >= 1.
            is_dead: returns whether a state can no longer be won, which ends the episode; None =
                play on.
        """
        if turn_budget < 1:
            raise ValueError(f"turn_budget must be >= 1, got {turn_budget}")
        self.game = game
        self._turn_budget = turn_budget
        self._is_dead = is_dead
        self._state: StateT | None = None
        self._steps_left = 0

    def reset(self, state: StateT) -> str:
        """Begin an episode and return its first user message.

        Raises:
            PuzzleError: the game is already decided in it.
        """
        refuse_decided(self.game, state)
        self._state = state
        self._steps_left = self._turn_budget
        return self._message(state, feedback="")

    def step(self, answer: str) -> TurnResult[StateT]:
        """Carry out the action of an answer, whatever the answer is.

        Raises:
            RuntimeError: there is no episode, or it has ended.
        """
        if self._state is None:
            raise RuntimeError("the episode has ended or never began: call reset first")
        action, transition = self._carry_out(self._state, answer)
        self._steps_left -= 1
        end_reason = self._end_reason(transition.state)
        message = "" if end_reason else self._message(transition.state, transition.feedback)
        self._state = None if end_reason else transition.state
        return TurnResult(
            action=action,
            effect=transition.effect,
            state=transition.state,
            feedback=transition.feedback,
            message=message,
            end_reason=end_reason,
        )

    def _carry_out(self, state: StateT, answer: str) -> tuple[str, Transition[StateT]]:
        """Return the canonical action, empty if none, and what it did."""
        action = self.game.parse(answer)
        if isinstance(action, ParseFailure):
            return "", Transition(state=state, effect=Effect.INVALID, feedback=action.feedback)
        return action, self.game.apply(state, action)

    def _end_reason(self, state: StateT) -> str:
        """Return why the episode ends in this state; empty if it continues."""
        status = self.game.status(state)
        if status is Status.WON:
            return SOLVED
        if status is Status.LOST:
            return LOST
        if self._is_dead is not None and self._is_dead(state):
            return DEADLOCK
        return "" if self._steps_left else TURN_BUDGET

    def _message(self, state: StateT, feedback: str) -> str:
        """Return the feedback line, if any, the observation and the steps left."""
        lines = [feedback] if feedback else []
        return "\n".join([*lines, self.game.observe(state), f"Steps left: {self._steps_left}"])
