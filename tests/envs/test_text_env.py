"""Episodes in words: messages, the budget, and the order of the reasons to end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.envs.text_env import TextEnv
from cast_ray.errors import PuzzleError
from cast_ray.games.game import Effect, Status
from cast_ray.games.sokoban import Sokoban, SokobanState
from tests.support.rooms import FIXED

GAME = Sokoban()
START = GAME.decode("_P_X_O")


def box_at_the_end(state: SokobanState) -> bool:
    """Say dead whenever a box is in the last cell, solved or not."""
    return 5 in state.boxes


class LostOnTheRight(Sokoban):
    """Sokoban whose player must not step on cell 2."""

    def status(self, state: SokobanState) -> Status:
        return Status.LOST if state.player == 2 else super().status(state)


def begun(turn_budget: int = 10, **settings: object) -> TextEnv[SokobanState]:
    env = TextEnv(GAME, START, turn_budget=turn_budget, **settings)  # type: ignore[arg-type]
    env.start()
    return env


def test_first_message_is_the_observation_and_the_steps_left() -> None:
    env = TextEnv(GAME, START, turn_budget=12)
    assert env.start() == GAME.observe(START) + "\nSteps left: 12"


def test_message_after_a_move_has_no_feedback_line() -> None:
    env = begun()
    result = env.step("```Right```")
    assert (result.action, result.effect, result.feedback) == ("Right", Effect.CHANGED, "")
    assert env.position == GAME.decode("__PX_O")
    assert result.state == env.state() == "__PX_O"
    assert result.message == GAME.observe(env.position) + "\nSteps left: 9"
    assert (result.end_reason, result.reward) == ("", 0.0)


def test_blocked_move_gives_feedback_first_and_uses_a_step() -> None:
    result = begun().step("```Up```")
    assert (result.action, result.effect, result.state) == ("Up", Effect.INEFFECTIVE, "_P_X_O")
    assert result.message == (
        "Up: a wall is in the way.\n" + GAME.observe(START) + "\nSteps left: 9"
    )


def test_unreadable_answer_gives_feedback_first_and_uses_a_step() -> None:
    result = begun().step("Up")
    assert (result.action, result.effect, result.state) == ("", Effect.INVALID, "_P_X_O")
    feedback, rest = result.message.split("\n", maxsplit=1)
    assert feedback.startswith("No action found.")
    assert rest == GAME.observe(START) + "\nSteps left: 9"


def test_episode_ends_solved_without_a_message() -> None:
    env = begun()
    results = [env.step("```Right```") for _ in range(3)]
    assert [result.end_reason for result in results] == ["", "", "solved"]
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert results[-1].message == ""


def test_solved_comes_before_deadlock_and_the_turn_budget() -> None:
    env = begun(turn_budget=3, is_dead=box_at_the_end)
    assert [env.step("```Right```").end_reason for _ in range(3)] == ["", "", "solved"]


def test_deadlock_comes_before_the_turn_budget() -> None:
    env = begun(turn_budget=1, is_dead=lambda state: state.player == 2)
    assert env.step("```Right```").end_reason == "deadlock"


def test_lost_by_the_rules_comes_before_deadlock() -> None:
    env = TextEnv(LostOnTheRight(), START, turn_budget=1, is_dead=lambda state: True)
    env.start()
    result = env.step("```Right```")
    assert (result.end_reason, result.message) == ("lost", "")


def test_without_a_deadlock_function_a_dead_state_is_played_on() -> None:
    env = TextEnv(GAME, GAME.decode("X_P_O"), turn_budget=2)
    env.start()
    assert [env.step("```Left```").end_reason for _ in range(2)] == ["", "turn_budget"]


@pytest.mark.parametrize("answer", ["```Left```", "```Up```", "nonsense", ""])
def test_turn_of_any_kind_uses_the_budget(answer: str) -> None:
    env = begun(turn_budget=3)
    results = [env.step(answer) for _ in range(3)]
    assert [result.end_reason for result in results] == ["", "", "turn_budget"]
    assert [result.message[-13:] for result in results] == ["Steps left: 2", "Steps left: 1", ""]


def test_step_after_the_end_is_an_error() -> None:
    env = begun(turn_budget=1)
    env.step("")
    with pytest.raises(RuntimeError, match="call start first"):
        env.step("")


def test_step_before_start_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="call start first"):
        TextEnv(GAME, START, turn_budget=1).step("")


def test_start_begins_anew_in_the_middle_of_an_episode() -> None:
    env = begun(turn_budget=2)
    env.step("```Right```")
    assert env.start().endswith("Steps left: 2")
    assert env.step("").end_reason == ""


def test_solved_board_is_refused() -> None:
    with pytest.raises(PuzzleError, match="already won"):
        TextEnv(GAME, GAME.decode("P*"), turn_budget=1).start()


def test_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"turn_budget.*1.*0"):
        TextEnv(GAME, START, turn_budget=0)


@FIXED
@given(st.lists(st.text() | st.sampled_from(["```1```", "```Right```"]), min_size=5, max_size=5))
def test_episode_ends_within_the_budget_whatever_is_answered(answers: list[str]) -> None:
    env = begun(turn_budget=5)
    reasons: list[str] = []
    for answer in answers:
        reasons.append(env.step(answer).end_reason)
        if reasons[-1]:
            break
    assert reasons[-1] in ("solved", "turn_budget")
    assert not any(reasons[:-1])
