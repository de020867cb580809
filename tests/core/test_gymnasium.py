"""The Gymnasium faces: the checker's opinion, and agreement with the text environment."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games.sokoban import ACTIONS, SYMBOLS, Sokoban
from cast_ray.gymnasium_envs import NUMERIC_ID, TEXT_ID, register_envs
from cast_ray.puzzles import Puzzle, puzzle_id_of

GAME = Sokoban()
ROOM = "######\n#__O_#\n#__X_#\n#P_XO#\n#____#\n######"
ALMOST_SOLVED = "######\n#____#\n#__*_#\n#_PXO#\n#____#\n######"
ANSWERS = {"text": lambda action: f"```{action}```", "numeric": ACTIONS.index}
IDS = {"text": TEXT_ID, "numeric": NUMERIC_ID}


@pytest.fixture(params=["text", "numeric"])
def face(request: pytest.FixtureRequest) -> str:
    register_envs()
    return request.param


def make(face: str, **settings: Any) -> gymnasium.Env[Any, Any]:  # Any: both faces
    return gymnasium.make(IDS[face], **settings)


def puzzle(board: str) -> Puzzle:
    state = GAME.decode(board)
    return Puzzle(
        game="sokoban",
        tier="id",
        puzzle_id=puzzle_id_of(GAME, state),
        board=board,
        cost_to_go=1,
        cost_status="exact",
        seed=0,
    )


@pytest.mark.parametrize("tier", ["id", "unseen"])
def test_checker_is_content(face: str, tier: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(face, tier=tier).unwrapped)


def test_registering_twice_is_allowed(face: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()


def test_same_seed_gives_the_same_room(face: str) -> None:
    env = make(face)
    boards = [env.reset(seed=seed)[1]["board"] for seed in (1, 2, 1)]
    assert boards[0] == boards[2] != boards[1]


def test_given_puzzles_are_drawn_by_the_seed(face: str) -> None:
    rooms = {ROOM, ROOM.replace("#P_XO#", "#_PXO#")}
    env = make(face, puzzles=[puzzle(room) for room in sorted(rooms)])
    assert {env.reset(seed=seed)[1]["board"] for seed in range(20)} == rooms


def test_solving_pays_one_and_terminates(face: str) -> None:
    env = make(face)
    env.reset(options={"board": ALMOST_SOLVED})
    _, reward, terminated, truncated, info = env.step(ANSWERS[face]("Right"))
    assert (reward, terminated, truncated, info["end_reason"]) == (1.0, True, False, "solved")


def test_deadlock_pays_nothing_and_terminates(face: str) -> None:
    env = make(face, is_dead=lambda state: True)
    env.reset(options={"board": ROOM})
    _, reward, terminated, truncated, info = env.step(ANSWERS[face]("Up"))
    assert (reward, terminated, truncated, info["end_reason"]) == (0.0, True, False, "deadlock")


def test_turn_budget_truncates(face: str) -> None:
    budget = GAME.tiers["mini"].turn_budget
    env = make(face, tier="mini")
    env.reset(options={"board": ROOM})
    ends = [env.step(ANSWERS[face]("Left"))[1:4] for _ in range(budget)]
    assert ends == [(0.0, False, False)] * (budget - 1) + [(0.0, False, True)]


def test_step_after_the_end_is_an_error(face: str) -> None:
    env = make(face, is_dead=lambda state: True)
    env.reset(options={"board": ROOM})
    env.step(ANSWERS[face]("Up"))
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step(ANSWERS[face]("Up"))


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        (ROOM.replace("P", "?"), "unknown symbol '\\?' at row 3, column 1"),
        ("PXO", "tier id has 6 x 6 boards, this one is 1 x 3"),
        (ROOM.replace("O", "_").replace("X", "*"), "already won"),
    ],
)
def test_broken_board_is_refused(face: str, board: str, reason: str) -> None:
    with pytest.raises(PuzzleError, match=reason):
        make(face).reset(options={"board": board})


def test_unknown_tier_is_refused(face: str) -> None:
    with pytest.raises(ConfigError, match=r"tier must be one of id.*, got 'easy'"):
        make(face, tier="easy")


def test_text_face_gives_the_messages_and_takes_any_answer() -> None:
    register_envs()
    env = make("text")
    message, _ = env.reset(options={"board": ROOM})
    assert message == GAME.observe(GAME.decode(ROOM)) + "\nSteps left: 30"
    message, *_, info = env.step("no idea")
    assert message.startswith("No action found.")
    assert (info["action"], info["effect"], info["board"]) == ("", "invalid", ROOM)


def test_numeric_face_gives_symbols_and_the_actions_that_change_something() -> None:
    register_envs()
    env = make("numeric")
    observation, _ = env.reset(options={"board": ROOM})
    symbols = np.array(list(SYMBOLS))[observation["cells"]]
    assert "\n".join("".join(row) for row in symbols) == ROOM
    assert observation["action_mask"].tolist() == [1, 1, 0, 1]
    observation, *_, info = env.step(ACTIONS.index("Right"))
    assert info["board"] == ROOM.replace("#P_XO#", "#_PXO#")
    assert observation["cells"][3].tolist() == [SYMBOLS.index(s) for s in "#_PXO#"]
