"""``cast-ray eval`` of a model in real engines: the same table twice, also over a SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cast_ray.evaluation.attempts import read_attempts
from tests.support.made_shop import write_shop
from tests.support.scripted import build_test_policy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

GAMES = "sokoban:mini,minesweeper:mini,webshop"
NUM_PUZZLES, NUM_ATTEMPTS = 5, 2
SETTINGS = (
    "engine.dtype=float32",
    "engine.max_num_seqs=8",
    "rollout.prompt_tokens=2048",
    "rollout.response_tokens=2048",
    "rollout.max_answer_tokens=16",
    "rollout.truncated=execute",
)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("shop")
    return os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "WEBSHOP_DATA": str(write_shop(folder / "data")),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    build_test_policy(folder, head_dim=32)
    return folder


@pytest.fixture(scope="module")
def first(model: Path, env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an evaluation that nothing disturbed."""
    out = tmp_path_factory.mktemp("first") / "out"
    ended = subprocess.run(
        command(model, out), env=env, capture_output=True, text=True, timeout=400
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out


def command(model: Path, out: Path) -> list[str]:
    words = ["--model", str(model), "--games", GAMES, "--out", str(out)]
    words += ["--limit", str(NUM_PUZZLES), "--attempts", str(NUM_ATTEMPTS)]
    return [sys.executable, "-m", "cast_ray.cli", "eval", *words, *SETTINGS]


def evaluate(model: Path, out: Path, env: dict[str, str]) -> str:
    """Return what the command says on the terminal."""
    words = command(model, out)
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def group_files(out: Path) -> dict[Path, int]:
    """Return the files of groups that count as played, with their times."""
    return {path: path.stat().st_mtime_ns for path in out.glob("trajectories/*/*/group-*.parquet")}


def told(out: Path) -> list[tuple[object, ...]]:
    """Return all that the model said and did, without times."""
    attempts = read_attempts(out / "attempts.parquet")
    return [
        (one.game, one.puzzle_id, one.attempt, one.seed, one.answers, one.actions, one.states,
         one.reward, one.end_reason, one.answer_tokens, one.prompt_tokens)
        for one in attempts
    ]  # fmt: skip


def test_every_attempt_is_there_with_its_words_and_tokens(first: Path) -> None:
    attempts = read_attempts(first / "attempts.parquet")
    assert len(attempts) == 3 * NUM_PUZZLES * NUM_ATTEMPTS
    assert {one.game for one in attempts} == {"sokoban", "minesweeper", "webshop"}
    for one in attempts:
        assert one.answer_tokens and all(1 <= (n or 0) <= 16 for n in one.answer_tokens)
        assert one.prompt_tokens is not None and one.prompt_tokens > 100 * len(one.answers)
        assert len(one.states) == len(one.costs) == len(one.answers) + 1
    shop = [one for one in attempts if one.game == "webshop"]
    assert all(cost != cost for one in shop for cost in one.costs)  # unknown, not zero
    assert len({one.answers for one in attempts}) > len(attempts) // 2  # it samples


def test_killed_evaluation_goes_on_and_ends_with_the_same_words(
    first: Path, model: Path, env: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # In a session of its own: Ray's processes, which SIGKILL leaves, are found by it.
    child = subprocess.Popen(
        command(model, out), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        wait_until(
            lambda: len(group_files(out)) >= 3 or child.poll() is not None,
            timeout_s=300,
            what="three groups",
        )
        assert child.poll() is None
    finally:
        family = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        for process in family:
            if process.is_running():
                process.kill()
    before = group_files(out)
    assert not (out / "attempts.parquet").exists()
    ended = subprocess.run(
        command(model, out), env=env, capture_output=True, text=True, timeout=400
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    after = group_files(out)
    assert len(after) == 3 * NUM_PUZZLES
    assert before.items() <= after.items()  # what was played was not played again
    assert told(out) == told(first)


def test_what_is_complete_is_said_again_without_an_engine(
    first: Path, model: Path, env: dict[str, str]
) -> None:
    ended = subprocess.run(
        command(model, first), env=env, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "starting the engine" not in ended.stdout
    assert (first / "results.md").read_text().strip() in ended.stdout
