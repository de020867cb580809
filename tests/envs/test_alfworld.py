"""ALFWorld as it is played: the package's own games, and a household of ours in their format."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cast_ray.envs.alfworld.benchmark import Alfworld, HouseholdTask
from cast_ray.envs.alfworld.game_files import data_folder, read_game
from cast_ray.envs.alfworld.households import _PACKAGE, _READER, NUM_KEPT_GAMES, TextGame
from cast_ray.envs.environment import Environment, EnvironmentTurn
from cast_ray.errors import ConfigError, EnvironmentSetupError, PuzzleError
from cast_ray.games.game import Effect
from tests.support.made_household import SPLIT, WALKTHROUGH, write_game
from tests.support.waiting import wait_until

if "CAST_RAY_TEST_ALFWORLD" not in os.environ:  # as .ci/run sets it
    pytest.importorskip("alfworld", reason="needs the extra alfworld")

SHARED = Path(__file__).parents[3] / "shared" / "data" / "alfworld"
NUM_EXPERT_GAMES = 20
NUM_COMPARED_GAMES = 4
"""The compared games are read by the package once more, which takes as long again."""

needs_shared_games = pytest.mark.skipif(
    not (SHARED / SPLIT).is_dir(), reason="the published games are not here"
)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the data folder of a household of our own."""
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    write_game(tmp_path, "mug")
    return tmp_path


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the boards of the published games, the small ones, which are read fast, first."""
    monkeypatch.setenv("ALFWORLD_DATA", str(SHARED))
    boards = [puzzle.board for puzzle in Alfworld().puzzles("valid_seen")]
    return sorted(boards, key=lambda board: (SHARED / board).stat().st_size)


@pytest.fixture
def mug(made: Path) -> Iterator[Environment]:
    """Return an episode of our household that has begun."""
    environment = Alfworld().environment(f"{SPLIT}/mug/trial_1/game.tw-pddl", turn_budget=6)
    environment.start()
    yield environment
    environment.close()


def give(environment: Environment, command: str) -> EnvironmentTurn:
    """Give a command in the form of an answer."""
    return environment.step(f"I think, therefore I act.\n```\n{command}\n```")


def expert_transcript(board: str) -> list[object]:
    """Follow the walkthrough in a game's file; return texts, commands and rewards of all turns."""
    environment = Alfworld().environment(board, turn_budget=30)
    first = environment.start()
    seen: list[object] = [environment.state(), environment.choices()]
    assert first == (
        f"{seen[0]}\nAdmissible commands: {', '.join(environment.choices())}\nSteps left: 30"
    )
    for command in read_game(data_folder(), board).walkthrough:
        turn = give(environment, command)
        seen += [turn.state, environment.choices(), turn.reward]
        if turn.end_reason:
            seen.append(turn.end_reason)
            break
    environment.close()
    return seen


def package_transcript(board: str) -> list[object]:
    """Do the same with the package alone, which has no lock, no copies and no lent planner."""
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld import EnvInfos
    from textworld.envs.pddl import PddlEnv

    path = data_folder() / board
    environment: Any = AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))
    environment.load(str(path))
    state = environment.reset()
    seen: list[object] = [state.feedback.strip(), tuple(state["admissible_commands"])]
    for command in environment.unwrapped.walkthrough:
        state, reward, is_done = environment.step(command)
        seen += [state.feedback.strip(), tuple(state["admissible_commands"]), float(reward)]
        if is_done:
            seen.append("solved" if state["won"] else "lost")
            break
    return seen


# The published games


@needs_shared_games
@pytest.mark.timeout(300)
def test_expert_solves_published_games_which_read_as_in_the_package(
    shared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, board in enumerate(shared[:NUM_EXPERT_GAMES]):
        seen = expert_transcript(board)
        assert seen[-2:] == [1.0, "solved"], board
        if number < NUM_COMPARED_GAMES:
            monkeypatch.setattr(sys, "argv", list(sys.argv))  # The package changes it.
            assert seen == package_transcript(board), board


@needs_shared_games
def test_messages_of_published_games_fit_a_prompt(shared: list[str]) -> None:
    board = shared[NUM_COMPARED_GAMES]
    environment = Alfworld().environment(board, turn_budget=30)
    messages = [environment.start()]
    for command in read_game(SHARED, board).walkthrough[:-1]:
        messages.append(give(environment, command).message)
    environment.close()
    assert (max(map(len, messages)) + len(environment.rules)) / 3.5 < 2048
    assert "Your task is to" in messages[0]


@needs_shared_games
def test_published_games_in_four_threads_read_as_alone(shared: list[str]) -> None:
    boards = shared[:4]
    alone = [expert_transcript(board) for board in boards]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(expert_transcript, boards + boards))
    assert together == alone + alone


# Our own household


def test_expert_solves_made_household_which_reads_as_in_the_package(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (puzzle,) = Alfworld().puzzles("valid_seen")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    seen = expert_transcript(puzzle.board)
    assert seen[-2:] == [1.0, "solved"]
    assert seen == package_transcript(puzzle.board)
    assert seen == expert_transcript(puzzle.board)


def test_made_households_in_four_threads_read_as_alone(made: Path) -> None:
    """More games than are kept, each read anew while others are played."""
    boards = [
        write_game(made, f"mug{number}", walkthrough=["look"] * number + list(WALKTHROUGH))
        for number in range(NUM_KEPT_GAMES + 2)
    ]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(expert_transcript, boards))
    assert together == [expert_transcript(board) for board in boards]


def test_episodes_of_one_game_do_not_touch_each_other(mug: Environment, made: Path) -> None:
    other = Alfworld().environment(f"{SPLIT}/mug/trial_1/game.tw-pddl", turn_budget=6)
    first = other.start()
    before = other.choices()
    give(mug, "go to table 1")
    give(mug, "take mug 1 from table 1")
    assert other.choices() == before
    assert give(other, "look").state == "Here you see nothing."
    assert "take mug 1 from table 1" in give(other, "go to table 1").message
    assert other.start() == first
    other.close()


def test_command_is_read_whatever_its_case_and_spaces(mug: Environment) -> None:
    turn = give(mug, "  Go  TO\ttable   1 ")
    assert (turn.action, turn.effect, turn.feedback) == ("go to table 1", Effect.CHANGED, "")
    assert turn.state == mug.state() == "You are at table 1. Here you see a mug 2, and a mug 1."
    assert turn.message.endswith("Steps left: 5")


def test_command_that_only_looks_is_executed(mug: Environment) -> None:
    turn = give(mug, "look")
    assert (turn.effect, turn.state) == (Effect.CHANGED, "Here you see nothing.")


@pytest.mark.parametrize("command", ["take mug 1 from table 1", "go to table", "go to table 11"])
def test_inadmissible_command_changes_nothing_and_is_told(mug: Environment, command: str) -> None:
    state, choices = mug.state(), mug.choices()
    turn = give(mug, command)
    assert (turn.action, turn.effect) == (command, Effect.ILLEGAL)
    assert (turn.state, mug.choices(), turn.reward) == (state, choices, 0.0)
    assert turn.feedback == "Not admissible now. " + (
        "End with one of the admissible commands, for example ```look```."
    )
    assert turn.message == (
        f"{turn.feedback}\n{state}\nAdmissible commands: {', '.join(choices)}\nSteps left: 5"
    )


@pytest.mark.parametrize("answer", ["", "go to table 1", "```go to table 1", "``````"])
def test_answer_without_a_pair_of_fences_changes_nothing(mug: Environment, answer: str) -> None:
    state = mug.state()
    turn = mug.step(answer)
    assert (turn.action, turn.effect, turn.state) == ("", Effect.INVALID, state)
    assert turn.message.startswith("No action found. ")


def test_command_that_the_game_does_not_know_again_is_ineffective(made: Path) -> None:
    """The package lists a place whose id has no number with a space behind and then strips it."""
    domain_of = read_game(made, f"{SPLIT}/mug/trial_1/game.tw-pddl")
    board = write_game(
        made, "cellar", pddl_problem=domain_of.problem.replace("shelf_bar_1", "cellar")
    )
    environment = Alfworld().environment(board, turn_budget=6)
    environment.start()
    state = environment.state()
    turn = give(environment, "go to cellar")
    assert (turn.effect, turn.state) == (Effect.INEFFECTIVE, state)
    assert turn.feedback.endswith(": nothing happens.")
    environment.close()


def test_turns_of_any_kind_use_up_the_budget(mug: Environment) -> None:
    for _ in range(2):
        assert mug.step("no fence").end_reason == ""
        assert give(mug, "fly").end_reason == ""
    assert give(mug, "look").message.endswith("Steps left: 1")
    turn = give(mug, "look")
    assert (turn.end_reason, turn.reward, turn.message) == ("turn_budget", 0.0, "")
    with pytest.raises(RuntimeError, match="ended"):
        give(mug, "look")


def test_task_solved_in_the_last_turn_is_solved(made: Path) -> None:
    environment = Alfworld().environment(
        f"{SPLIT}/mug/trial_1/game.tw-pddl", turn_budget=len(WALKTHROUGH)
    )
    environment.start()
    turns = [give(environment, command) for command in WALKTHROUGH]
    assert [turn.end_reason for turn in turns] == ["", "", "", "solved"]
    assert [turn.reward for turn in turns] == [0, 0, 0, 1]
    assert turns[-1].message == ""
    with pytest.raises(RuntimeError, match="ended"):
        give(environment, "look")
    environment.close()


def test_closed_episode_refuses_and_can_be_closed_again(mug: Environment) -> None:
    mug.close()
    mug.close()
    with pytest.raises(RuntimeError, match="closed"):
        mug.start()
    with pytest.raises(RuntimeError, match="closed"):
        give(mug, "look")


def test_episode_closed_while_it_begins_gives_its_planner_back(made: Path) -> None:
    """As when a rollout is cancelled: the call goes on in its thread, and nobody waits for it."""
    board = f"{SPLIT}/mug/trial_1/game.tw-pddl"
    expert_transcript(board)
    num_planners = len(_READER.planners)
    game = TextGame(read_game(made, board))
    with ThreadPoolExecutor(1) as pool:
        with _PACKAGE:
            beginning = pool.submit(game.start)
            wait_until(game._in_call.locked, timeout_s=30, what="the game begins")
            game.close()
        assert beginning.result(timeout=30).text.startswith("Here you see nothing.")
    assert len(_READER.planners) == num_planners


def test_episodes_that_come_and_go_leave_nothing_behind(made: Path) -> None:
    board = f"{SPLIT}/mug/trial_1/game.tw-pddl"

    def held() -> tuple[int, int, int]:
        maps = Path("/proc/self/maps").read_text()
        return (
            len(os.listdir("/proc/self/fd")),
            maps.count("libdownward"),
            threading.active_count(),
        )

    expert_transcript(board)
    before = held()
    for _ in range(30):
        expert_transcript(board)
        unplayed = Alfworld().environment(board, turn_budget=6)
        unplayed.close()
    assert held() == before


# Data and package


def test_puzzles_are_the_solvable_games_in_order_of_their_paths(made: Path) -> None:
    write_game(made, "zebra", solvable=False)
    write_game(made, "no_word_of_it", solvable=None)
    write_game(made, "movable_table")
    names = ("apple", "tin", "cup", "rug", "egg", "bin", "pen")
    first, *_ = [write_game(made, name) for name in names]
    puzzles = Alfworld().puzzles("valid_seen")
    assert [puzzle.board for puzzle in puzzles] == [
        f"{SPLIT}/{name}/trial_1/game.tw-pddl" for name in sorted((*names, "mug"))
    ]
    content = (made / first).read_bytes()
    assert puzzles[0].puzzle_id == hashlib.sha256(content).hexdigest()[:16]
    assert (puzzles[0].cost_to_go, puzzles[0].cost_status, puzzles[0].seed) == (None, "unknown", 0)


def test_unknown_tier_is_refused(made: Path) -> None:
    with pytest.raises(ConfigError, match="valid_seen, valid_unseen"):
        Alfworld().puzzles("train")


def test_board_that_leads_out_of_the_data_is_refused(made: Path, tmp_path_factory: Any) -> None:
    away = tmp_path_factory.mktemp("away")
    board = write_game(away, "mug")
    (made / "link").symlink_to(away)
    for unsafe in (
        str(made / f"{SPLIT}/mug/trial_1/game.tw-pddl"),
        f"../{away.name}/{board}",
        f"{SPLIT}/../valid_seen/mug/trial_1/game.tw-pddl",
        f"link/{board}",
        "logic/alfred.pddl",
        f"{SPLIT}/nowhere/game.tw-pddl",
        "a\0b/game.tw-pddl",
        "a" * 5000 + "/game.tw-pddl",
        "",
    ):
        with pytest.raises(PuzzleError, match=r"game\.tw-pddl"):
            Alfworld().environment(unsafe, turn_budget=30)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"grammar": 1}', b"\xff\xfe", b"{"])
def test_broken_file_is_a_puzzle_error(made: Path, content: bytes) -> None:
    board = f"{SPLIT}/mug/trial_1/game.tw-pddl"
    (made / board).write_bytes(content)
    with pytest.raises(PuzzleError, match="mug"):
        Alfworld().environment(board, turn_budget=30)


@pytest.mark.parametrize(
    "changes",
    [
        {"grammar": "grammar :: nothing"},
        {"pddl_problem": "(define (problem"},
        {"pddl_problem": "(define (problem p) (:domain household) (:init (flies pig)))"},
        {"pddl_domain": ""},
    ],
)
def test_broken_logic_is_a_puzzle_error_and_the_next_game_goes_well(
    made: Path, changes: dict[str, str]
) -> None:
    arguments = sys.argv
    broken = Alfworld().environment(write_game(made, "broken", **changes), turn_budget=30)
    with pytest.raises(PuzzleError, match="broken"):
        broken.start()
    broken.close()
    assert sys.argv is arguments
    assert expert_transcript(f"{SPLIT}/mug/trial_1/game.tw-pddl")[-1] == "solved"


def test_missing_data_are_told_with_the_way_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"ALFWORLD_DATA.*alfworld-download"
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(EnvironmentSetupError, match=message):
        Alfworld().puzzles("valid_seen")
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(EnvironmentSetupError, match=message):
        Alfworld().environment(f"{SPLIT}/mug/trial_1/game.tw-pddl", turn_budget=30)
    write_game(tmp_path, "mug")
    with pytest.raises(EnvironmentSetupError, match=rf"valid_unseen.*{message}"):
        Alfworld().puzzles("valid_unseen")


@pytest.mark.parametrize("package", ["alfworld", "textworld", "fast_downward"])
def test_missing_package_is_told_with_the_way_to_get_it(made: Path, package: str) -> None:
    """Python itself takes None among the modules for a package that is not there."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from cast_ray.envs.alfworld.benchmark import Alfworld\n"
        "from cast_ray.errors import EnvironmentSetupError\n"
        "try:\n    Alfworld().puzzles('valid_seen')\n"
        "except EnvironmentSetupError as error:\n    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install cast-ray[alfworld]" in ended.stdout


def test_process_that_played_ends_well(made: Path) -> None:
    """Unloading a planner would make it crash at its end."""
    code = (
        "from cast_ray.envs.alfworld.benchmark import Alfworld\n"
        "environment = Alfworld().environment("
        f"'{SPLIT}/mug/trial_1/game.tw-pddl', turn_budget=3)\n"
        "environment.start(); environment.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_turn_budget_below_one_is_refused(made: Path) -> None:
    with pytest.raises(ValueError, match="turn_budget"):
        Alfworld().environment(f"{SPLIT}/mug/trial_1/game.tw-pddl", turn_budget=0)


def test_rules_name_the_form_of_an_answer() -> None:
    assert "three backticks" in HouseholdTask.rules
