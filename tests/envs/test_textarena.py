"""Games of the published TextArena package, really played."""

from __future__ import annotations

import random
import re
from itertools import permutations
from pathlib import Path

import pytest

from cast_ray.envs import textarena
from cast_ray.envs.environment import Environment
from cast_ray.envs.registry import find_benchmark, make_environment
from cast_ray.envs.text_env import LOST, SOLVED, TURN_BUDGET

pytest.importorskip("textarena")
NAMES = ("Mastermind", "TowerOfHanoi", "FrozenLake", "FifteenPuzzle", "Game2048")


def episode(name: str, task: int = 3, turn_budget: int = 0) -> Environment:
    tasks = find_benchmark(f"cast_ray.envs.textarena:{name}")
    budget = turn_budget or tasks.tiers["tasks"].turn_budget
    return make_environment(tasks.puzzles("tasks")[task], turn_budget=budget)


def answers_of(name: str, number: int) -> list[str]:
    rng = random.Random(5)
    if name == "Mastermind":
        return ["[" + " ".join(map(str, rng.sample(range(1, 7), 4))) + "]" for _ in range(number)]
    return [rng.choice(getattr(textarena, name).moves) for _ in range(number)]


def texts(name: str, task: int) -> list[str]:
    environment, found = episode(name, task), []
    found.append(environment.start())
    for answer in answers_of(name, 5):
        turn = environment.step(answer)
        found.append(turn.state)
        if turn.end_reason:
            break
    return found


@pytest.mark.parametrize("name", NAMES)
def test_same_task_reads_the_same_and_another_does_not(name: str) -> None:
    random.seed(0)
    before = random.getstate()
    first = texts(name, 3)
    assert random.getstate() == before  # those of the process are nobody else's to move
    random.seed(1)
    assert texts(name, 3) == first
    assert all(first) and len(first) > 1
    if name != "TowerOfHanoi":  # all its games begin alike
        assert texts(name, 4) != first


def test_games_played_in_turn_do_not_touch_each_other() -> None:
    alone = texts("Game2048", 3)
    one, other = episode("Game2048", 3), episode("Game2048", 4)
    found = [one.start()]
    other.start()
    for answer in answers_of("Game2048", 5):
        found.append(one.step(answer).state)
        other.step("[up]")
        other.step("[left]")
    assert found == alone


def test_tower_of_hanoi_is_solved_by_its_seven_moves() -> None:
    environment = episode("TowerOfHanoi")
    assert "A" in environment.start()
    moves = ["A C", "A B", "C B", "A C", "B A", "B C", "A C"]
    turns = [environment.step(f"I move [{move}]") for move in moves]
    assert [turn.end_reason for turn in turns] == [""] * 6 + [SOLVED]
    assert [turn.reward for turn in turns] == [0] * 6 + [1]


def test_code_of_mastermind_is_found_from_what_the_game_says() -> None:

    environment = episode("Mastermind")
    environment.start()
    left = list(permutations(range(1, 7), 4))
    for _ in range(20):
        guess = left[0]
        turn = environment.step("[" + " ".join(map(str, guess)) + "]")
        if turn.end_reason:
            break
        black, white = map(int, re.findall(r"(\d+) (?:black|white)", turn.message)[:2])

        def pegs(code: tuple[int, ...], guess: tuple[int, ...] = guess) -> tuple[int, int]:
            same = sum(a == b for a, b in zip(code, guess, strict=True))
            return same, len(set(code) & set(guess)) - same

        left = [code for code in left if pegs(code) == (black, white)]
    assert (turn.end_reason, turn.reward) == (SOLVED, 1)


def test_last_move_is_played_alone_whatever_was_thought_before() -> None:
    secretary = f"{Path(__file__).parents[1] / 'extensions' / 'secretary.py'}:Secretary"
    environment = make_environment(find_benchmark(secretary).puzzles("tasks")[3], turn_budget=6)
    environment.start()
    turn = environment.step("Not yet [accept], so ```[continue]```")
    assert (turn.effect, turn.action, turn.end_reason) == ("changed", "[continue]", "")
    assert environment.step("[accept]").end_reason == LOST  # the best of the five comes later


def test_answer_without_a_move_is_invalid_and_the_budget_ends_the_game() -> None:
    environment = episode("FrozenLake", turn_budget=2)
    environment.start()
    assert environment.step("I stay.").effect == "invalid"
    assert environment.step("[hop]").end_reason in (TURN_BUDGET, LOST)


def test_every_game_that_lists_moves_can_be_played_at_random() -> None:
    for name in NAMES[1:]:
        environment = episode(name)
        environment.start()
        assert environment.step(environment.choices()[0]).action
