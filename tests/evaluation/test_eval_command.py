"""``cast-ray eval`` as its users call it, with everybody who needs no engine."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from cast_ray.cli.main import main
from cast_ray.evaluation.attempts import read_attempts
from tests.support.scripted_endpoint import (
    KEY,
    MODEL,
    Asked,
    Fault,
    ScriptedEndpoint,
    garbled,
    rate_limited,
    refused,
    serving,
    slow,
)

GAMES = "sokoban:mini,sokoban:mini-unseen"
NUM_PUZZLES = 8


def command(out: Path, models: Sequence[str], *words: str, games: str = GAMES) -> list[str]:
    chosen = [word for model in models for word in ("--model", model)]
    place = ["--games", games, "--limit", str(NUM_PUZZLES), "--attempts", "2", "--out", str(out)]
    return [sys.executable, "-m", "cast_ray.cli", "eval", *chosen, *place, *words]


def run(words: Sequence[str], env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error; in this process, which is faster."""
    said, told = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(said),
        redirect_stderr(told),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["cast-ray", *words[words.index("cast_ray.cli") + 1 :]])
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        main()
    return int(ended.value.code or 0), said.getvalue(), told.getvalue()


def test_players_fill_the_tables_and_the_same_command_says_them_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, error = run(command(out, ["solver", "random"]))
    assert code == 0, error
    document = json.loads((out / "results.json").read_text())
    assert list(document["models"]) == ["solver", "random"]
    attempts = read_attempts(out / "attempts.parquet")
    assert len(attempts) == 2 * 2 * NUM_PUZZLES * 2
    for which in GAMES.split(","):
        own = [a for a in attempts if (a.model, f"{a.game}:{a.tier}") == ("random", which)]
        mean = sum(attempt.is_success for attempt in own) / len(own)
        assert 0 <= mean < 1
        assert f"{100 * mean:.1f}" in text
    assert "100.0" in text
    assert (out / "results.md").read_text().strip() in text
    assert "solver" in (out / "case_study.html").read_text()
    before = (out / "attempts.parquet").stat().st_mtime_ns
    assert run(command(out, ["solver", "random"]))[1].split("results in")[0] in text
    assert (out / "attempts.parquet").stat().st_mtime_ns == before


def test_given_boards_are_played_all_of_them_in_their_order(tmp_path: Path) -> None:
    rooms = ["#####\n#@$.#\n#####", "########\n#@ $  .#\n########", "#####\n#.$@#\n#####"]
    for number, room in enumerate(rooms):
        (tmp_path / f"{number}.xsb").write_text(room)
    files = [word for i in (1, 0, 2) for word in ("--puzzles", str(tmp_path / f"{i}.xsb"))]
    which = ["--model", "solver", "--games", "sokoban:mini", "--attempts", "1"]
    words = [sys.executable, "-m", "cast_ray.cli", "eval", *which, "--out", str(tmp_path / "out")]
    code, _, error = run([*words, *files])
    assert code == 0, error
    attempts = read_attempts(tmp_path / "out/attempts.parquet")
    # The third room is the second in a mirror: the same puzzle, played all the same.
    assert [a.puzzle.count("_") for a in attempts] == [3, 0, 0]
    assert [a.is_success for a in attempts] == [True] * 3
    assert attempts[1].puzzle_id == attempts[2].puzzle_id
    code, _, error = run([*words, *files[:4]])
    assert (code, error.count("\n")) == (2, 1)
    assert "holds another evaluation" in error


def test_players_that_see_the_mines_are_called_privileged(tmp_path: Path) -> None:
    words = command(tmp_path / "out", ["greedy", "solver"], games="minesweeper:mini")
    code, text, error = run(words)
    assert code == 0, error
    assert "Privileged in Minesweeper, where it sees the mines: greedy.\n" in text
    assert json.loads((tmp_path / "out/results.json").read_text())["privileged"] == ["greedy"]


@pytest.mark.parametrize(
    ("models", "words", "games", "sentence"),
    [
        (["solver"], [], "chess", "there is no game or environment 'chess'"),
        (["solver"], [], "sokoban:huge", "tier of sokoban must be one of"),
        (["solver"], ["--puzzles", "none.xsb"], "sokoban", "none.xsb cannot be read"),
        (["solver"], ["--puzzles", "none.xsb"], GAMES, "--puzzles needs one game"),
        (["solver"], ["--puzzles", "none.xsb"], "alfworld", "has tasks of its own"),
        (["solver"], ["puzzles.file=x.parquet"], "sokoban", "by --puzzles FILE"),
        (["nowhere"], [], GAMES, "neither a model directory"),
        (["soft-solver"], [], GAMES, "the temperature must be a number above 0"),
        (["solver", "solver"], [], GAMES, "solver: give each a --name"),
        (["solver"], ["evaluation.temperature=-1"], GAMES, "evaluation.temperature"),
        (["openai:big"], [], GAMES, "set OPENAI_API_KEY"),
        (["openai:big"], ["--extra-body", '{"n": 2}'], GAMES, "--extra-body must not set n"),
        (["solver"], ["--extra-body", '{"top_k": 2}'], GAMES, "--extra-body is for models behind"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_made(
    tmp_path: Path, models: list[str], words: list[str], games: str, sentence: str
) -> None:
    code, _, error = run(
        command(tmp_path / "out", models, *words, games=games), {"OPENAI_API_KEY": ""}
    )
    assert code == 2
    [line] = error.strip().splitlines()
    assert line.startswith("cast-ray: ") and sentence in line
    assert not (tmp_path / "out" / "attempts.parquet").exists()


def test_a_directory_of_another_evaluation_is_not_touched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(command(out, ["solver"]))[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, error = run(command(out, ["greedy"]))
    assert code == 2
    assert "holds another evaluation" in error
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def troubled(asked: Asked) -> Fault | None:
    """A rate limit, a 500, a late answer, a garbled one: each new request meets one of them."""
    if asked.repetition:
        return None
    return (rate_limited(), refused(500, "oops"), slow(0.1), garbled(b"{"))[asked.place % 4]


def test_an_endpoint_with_faults_that_is_killed_fills_the_same_table(tmp_path: Path) -> None:
    calm = tmp_path / "calm"
    with serving(ScriptedEndpoint()) as environ:
        code, _, error = run(command(calm, [f"openai:{MODEL}"]), environ)
        assert code == 0, error
    server = ScriptedEndpoint(script=troubled)
    out = tmp_path / "out"
    with serving(server) as environ:
        words = command(out, [f"openai:{MODEL}"], "--concurrency", "4")
        server.hold_from = 60
        child = subprocess.Popen(words, env=os.environ | environ, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while not server.is_at_rest:
            assert time.monotonic() < end and child.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)  # what was delivered is written down
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        num_before = server.num_delivered
        assert num_before > 0
        server.hold_from = 1 << 60
        code, _, error = run(words, environ)
        assert code == 0, error
        assert max(server.delivered.values()) == 1  # no answer was paid for twice
        assert server.num_delivered > num_before
    same = [(out / "results.md").read_text(), (calm / "results.md").read_text()]
    assert _without_effort(same[0]) == _without_effort(same[1])
    for place in (out, calm):
        attempts = read_attempts(place / "attempts.parquet")
        # It follows the solver, so what it does not solve needs more turns than there are.
        assert all(a.is_success == (a.costs[0] <= a.turn_budget) for a in attempts)
    told = [a.actions for a in read_attempts(calm / "attempts.parquet")]
    assert told == [a.actions for a in read_attempts(out / "attempts.parquet")]
    assert KEY not in "".join(
        path.read_text(errors="replace") for path in out.rglob("*") if path.is_file()
    )


def _without_effort(text: str) -> str:
    """Return tables without what trouble costs: time and repeated requests."""
    sections = text.split("### ")
    assert sum(section.startswith("Effort") for section in sections) == 1
    return "### ".join(one for one in sections if not one.startswith("Effort"))


def test_attempt_without_an_answer_is_a_failure_of_its_own_kind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refusal = refused(400, "no such board, please", code="content_filter")
    boards: list[str] = []

    def script(asked: Asked) -> Fault | None:
        """Refuse one board, whoever attempts it and how often."""
        board = asked.body["messages"][1]["content"]
        boards.append(board)
        return refusal if board == boards[0] else None

    words = ["--concurrency", "1", "--prompt-price", "1", "--answer-price", "1"]
    server = ScriptedEndpoint(script=script)
    with serving(server) as environ:
        words = command(out, [f"openai:{MODEL}", "solver"], *words, games="sokoban:mini")
        code, text, error = run(words, environ)
        assert code == 0, error
        num_asked = server.num_asked
        assert run(words, environ)[0] == 0
        assert server.num_asked == num_asked
    attempts = [a for a in read_attempts(out / "attempts.parquet") if a.model != "solver"]
    lost, others = attempts[:2], attempts[2:]
    for attempt in lost:
        assert attempt.end_reason == "no_answer" and not attempt.is_success
        assert attempt.no_answer_reason == "status 400: no such board, please"
        assert (len(attempt.states), attempt.answers, attempt.answer_tokens) == (1, (), ())
    assert not any(a.no_answer_reason or a.end_reason == "no_answer" for a in others)
    document = json.loads((out / "results.json").read_text())
    model = document["models"][f"openai:{MODEL}"]
    assert model["failures"]["sokoban:mini"]["no_answer"] == 2
    solved = sum(a.is_success for a in others)
    assert model["results"]["sokoban:mini"]["success"] == solved / len(attempts)
    assert "no answer" in text
    assert "no such board, please" in (out / "case_study.html").read_text()


def test_extra_body_belongs_to_the_evaluation(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = command(out, [f"openai:{MODEL}"], games="sokoban:mini")
    server = ScriptedEndpoint()
    with serving(server) as environ:
        code, _, error = run([*words, "--extra-body", '{"top_k": 20}'], environ)
        assert code == 0, error
        assert {body["top_k"] for body in server.bodies} == {20}
        num_asked = server.num_asked
        for others in ([], ["--extra-body", '{"top_k": 21}']):
            code, _, error = run([*words, *others], environ)
            assert code == 2 and "holds another evaluation, with extra_body" in error
        assert server.num_asked == num_asked
    assert json.loads((out / "evaluation.json").read_text())["extra_body"] == {"top_k": 20}


def test_a_refused_key_ends_with_one_line(tmp_path: Path) -> None:
    with serving(ScriptedEndpoint()) as environ:
        code, _, error = run(
            command(tmp_path / "out", [f"openai:{MODEL}"]), environ | {"OPENAI_API_KEY": "wrong"}
        )
    assert code == 2
    assert error.strip().splitlines()[-1].startswith("cast-ray: ")
    assert "key" in error
    assert "wrong" not in error
