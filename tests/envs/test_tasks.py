"""Environments of the user's: what they return is held to their promises, and told where not."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from cast_ray.config.load import load_config, save_config
from cast_ray.config.puzzles import PuzzleConfig
from cast_ray.datasets.splits import make_boards
from cast_ray.envs.environment import Environment
from cast_ray.envs.registry import find_benchmark, make_environment
from cast_ray.envs.tasks import Step, TaskSet, TextEnvironment
from cast_ray.envs.text_env import LOST, SOLVED, TURN_BUDGET
from cast_ray.errors import CallbackError, ConfigError
from cast_ray.functions import pinned_name
from cast_ray.rollout.episode import run_blocking
from tests.support.refusals import refused

GUESS = f"{Path(__file__).parents[1] / 'extensions' / 'guess_number.py'}:GuessNumber"
FRAME = """
from cast_ray.envs.tasks import Step, TextEnvironment

class Mine(TextEnvironment):
    rules = "Say something."
    turn_budget = 2

    def reset(self, task):
        return "Begin."

    def step(self, answer):
        return {step}
"""


def mine(folder: Path, step: str = 'Step(observation="Go on.")') -> str:
    (folder / "mine.py").write_text(FRAME.format(step=step))
    return f"{folder / 'mine.py'}:Mine"


def episode(name: str, task: int = 0, turn_budget: int = 6) -> Environment:
    return make_environment(find_benchmark(name).puzzles("tasks")[task], turn_budget=turn_budget)


def played(name: str, answers: list[str], task: int = 0) -> list[object]:
    environment = episode(name, task)
    return [environment.start(), *map(environment.step, answers)]


def test_reward_adds_up_and_the_right_guess_solves() -> None:
    number = random.Random(7).randint(1, 20)
    environment = episode(GUESS, task=7)
    assert environment.start() == "Your first guess?"
    wrong = environment.step(f"I try ```{number - 1}```")
    assert (wrong.message, wrong.action, wrong.end_reason) == ("Higher.", str(number - 1), "")
    assert wrong.reward == pytest.approx(0.5 * (number - 1) / 20)
    right = environment.step(f"```{number}```")
    assert (right.message, right.end_reason) == ("", SOLVED)
    assert right.reward == pytest.approx(1)
    with pytest.raises(RuntimeError, match="ended"):
        environment.step("```1```")


def test_same_task_and_answers_give_the_same_episode_also_between_those_of_others() -> None:
    answers = ["```10```", "none", "```5```"]
    alone = played(GUESS, answers, task=3)
    one, other = episode(GUESS, task=3), episode(GUESS, task=5)
    found = [one.start()]
    other.start()
    for answer in answers:
        found.append(one.step(answer))
        other.step("```11```")
    assert found == alone
    assert played(GUESS, answers, task=5) != alone


def test_what_is_no_action_is_counted_and_uses_up_a_turn() -> None:
    environment = episode(GUESS, turn_budget=2)
    environment.start()
    assert environment.step("I do not know.").effect == "invalid"
    assert environment.step("```21```").end_reason == TURN_BUDGET


def test_done_below_one_is_lost_and_keeps_what_was_earned(tmp_path: Path) -> None:
    name = mine(tmp_path, 'Step(observation="", reward=0.4, done=True)')
    _, turn = played(name, ["x"])
    assert (turn.end_reason, turn.reward) == (LOST, 0.4)


def test_shares_that_make_one_solve_though_their_sum_is_rounded(tmp_path: Path) -> None:
    name = mine(tmp_path, 'Step(observation="", reward=0.7, done=len(answer) > 1)')
    shares = played(name, ["x"] * 1)
    assert shares[1].reward == 0.7
    tenths = mine(tmp_path / "..", 'Step(observation="", reward=0.1, done=answer == "end")')
    environment = episode(tenths, turn_budget=20)
    environment.start()
    for _ in range(9):
        environment.step("x")
    last = environment.step("end")
    assert last.reward < 1  # ten tenths, as floats
    assert last.end_reason == SOLVED


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("1 / 0", r"Mine\.step failed: ZeroDivisionError.*mine\.py, line 12"),
        ('"text"', r"Mine\.step.*must return a cast_ray\.envs\.tasks\.Step.*'text'"),
        ("None", r"Mine\.step.*must return a cast_ray\.envs\.tasks\.Step.*None"),
        ("Step(observation=3)", r"Mine\.step.*with a text.*observation=3"),
        ('Step(observation="", reward=float("nan"))', r"reward that is a finite number.*nan"),
        ('Step(observation="", reward=float("inf"))', r"reward that is a finite number.*inf"),
        ('Step(observation="", reward="much")', r"reward that is a finite number.*'much'"),
    ],
)
def test_step_that_breaks_its_promise_is_told(tmp_path: Path, step: str, message: str) -> None:
    environment = episode(mine(tmp_path, step))
    environment.start()
    with pytest.raises(CallbackError, match=message):
        environment.step("x")


def test_call_that_does_not_return_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cast_ray.rollout.episode._SLOWEST_S", 0.1)
    environment = episode(mine(tmp_path, '__import__("time").sleep(1)'))
    environment.start()
    with pytest.raises(CallbackError, match=r"step of an environment did not return within 0\.1 s"):
        asyncio.run(run_blocking(environment, environment.step, "x"))


def test_start_that_is_no_text_is_told(tmp_path: Path) -> None:
    name = mine(tmp_path)
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace('return "Begin."', "return None"))
    with pytest.raises(CallbackError, match=r"Mine\.reset.*must return a text, got None"):
        episode(name).start()


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ('    rules = "Say something."', "", r"Mine\.rules must be the text"),
        ('    rules = "Say something."', "    rules = ' '", r"Mine\.rules must be the text"),
        ("    turn_budget = 2", "    turn_budget = 0", r"Mine\.turn_budget.*>= 1, got 0"),
        ("    turn_budget = 2", "    num_tasks = 2.5", r"Mine\.num_tasks.*>= 1, got 2\.5"),
    ],
)
def test_wrong_attributes_are_refused(
    tmp_path: Path, line: str, instead: str, message: str
) -> None:
    name = mine(tmp_path)
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text().replace(line, instead))
    with pytest.raises(ConfigError, match=message):
        find_benchmark(name)


def test_class_of_another_kind_or_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...\nclass Needs:\n  def __init__(self, x): ...")
    with pytest.raises(ConfigError, match=r"of type Mine: derive it.*TextEnvironment"):
        find_benchmark(f"{tmp_path / 'mine.py'}:Mine")
    with pytest.raises(ConfigError, match="0 positional arguments"):
        find_benchmark(f"{tmp_path / 'mine.py'}:Needs")
    with pytest.raises(ConfigError, match=r"mine\.py:Other cannot be imported.*no attribute"):
        find_benchmark(f"{tmp_path / 'mine.py'}:Other")
    with pytest.raises(ConfigError, match="does not exist"):
        find_benchmark(f"{tmp_path / 'none.py'}:Mine")


def test_no_choices_are_named_with_the_remedy(tmp_path: Path) -> None:
    environment = episode(mine(tmp_path))
    environment.start()
    with pytest.raises(ConfigError, match=r"no choices.*method choices"):
        environment.choices()


def test_stored_class_is_called_only_as_it_was(tmp_path: Path) -> None:
    config = load_config(None, [f"game={mine(tmp_path)}", "oracle=turn_reward"])
    assert (config.tier, config.warm_start.steps, config.title) == ("tasks", 0, "Mine-tasks")
    save_config(config, tmp_path / "config.yaml")
    mine(tmp_path, 'Step(observation="Changed.")')
    stored = load_config(tmp_path / "config.yaml", [])  # to look at a run, nothing is imported
    assert stored.game == config.game == stored.functions["game"]
    with pytest.raises(ConfigError, match=r"not what this run began with"):
        find_benchmark(stored.game)


def test_sets_of_tasks_share_none_and_follow_the_seed() -> None:
    config = PuzzleConfig(num_train=50, num_validation=20, num_held_out=10)
    boards = make_boards(GUESS, "tasks", config)
    ids = [{p.puzzle_id for p in part} for part in (boards.train, boards.validation)]
    held_out = {p.puzzle_id for p in boards.held_out}
    assert [len(one) for one in (*ids, held_out)] == [50, 20, 10]
    assert len(held_out.union(*ids)) == 80
    assert make_boards(GUESS, "tasks", config) == boards
    assert pinned_name("game", GUESS) != GUESS
    again = make_boards(pinned_name("game", GUESS), "tasks", config)
    assert [p.puzzle_id for p in again.train] == [p.puzzle_id for p in boards.train]


def test_more_tasks_than_there_are_or_a_file_of_boards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"10000 tasks.*leave none"):
        make_boards(GUESS, "tasks", PuzzleConfig(num_held_out=10_000))
    with pytest.raises(ConfigError, match=r"puzzles\.file"):
        make_boards(GUESS, "tasks", PuzzleConfig(file=str(tmp_path / "boards.parquet")))


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        (["oracle=none"], ("oracle=none", "advantage.alpha=1.0", "algorithm=grpo")),
        (
            ["oracle=turn_reward", "algorithm=distill_reverse"],
            ("distillation.mode", "oracle=turn_reward"),
        ),
        (["resources.oracle_actors=0"], ("resources.oracle_actors >= 1",)),
    ],
)
def test_oracle_that_contradicts_the_rest_is_refused(
    values: list[str], facts: tuple[str, ...]
) -> None:
    with refused(ConfigError, *facts):
        load_config(None, values)


def test_task_set_names_the_class_in_its_boards() -> None:
    class Silent(TextEnvironment):
        rules, num_tasks = "Say nothing.", 2

        def reset(self, task: int) -> str:
            return f"Task {task}."

        def step(self, answer: str) -> Step:
            return Step(observation="", reward=1.0, done=not answer)

    tasks = TaskSet("mine.py:Silent@0123456789abcdef", Silent)
    assert [p.board for p in tasks.puzzles("tasks")] == ["task 0", "task 1"]
    assert tasks.environment("task 1", turn_budget=1).start() == "Task 1."


@pytest.mark.parametrize("name", ["guess_number", "secretary"])
def test_page_shows_the_files_that_are_tested(name: str) -> None:
    root = Path(__file__).parents[2]
    shown = (root / "docs/add_an_environment.md").read_text()
    assert (
        f"```python\n{(root / 'tests/extensions' / name).with_suffix('.py').read_text()}```"
        in shown
    )
