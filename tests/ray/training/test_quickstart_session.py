"""The quickstart's commands as a stranger types them, one after the other, with small values.

What stands on the pages is run; only values are added that make it short. ``make train`` is
tests/ray/training/test_train.py's; the page's other trainings differ from the one here only in
their values.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import httpx
import pytest

from cast_ray.runs.run_directory import RunDirectory
from tests.support.session import Session

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

DOCS = Path(__file__).parents[3] / "docs"
QUICKSTART = (DOCS / "quickstart.md").read_text()
SERVICE = (DOCS / "service.md").read_text()
SERVE = ["cast-ray", "serve", "runs/mine"]
SMALL = (
    "steps=1",
    "puzzles.num_train=200",
    "puzzles.num_validation=4",
    "puzzles.num_held_out=8",
    "warm_start.steps=40",
    "warm_start.careless_steps=10",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=4",
    "rollout.group_size=4",
    "evaluation.held_out_attempts=1",
)


def line(page: str, beginning: str) -> list[str]:
    """Return the words of the one command of a page's shell blocks that begins so."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
    found = [one for text in blocks for one in text.splitlines() if one.startswith(beginning)]
    assert len(found) == 1, found
    return shlex.split(found[0], comments=True)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """After the first training of the page and its second half."""
    typed = Session(tmp_path_factory.mktemp("session"))
    train = line(QUICKSTART, "cast-ray train seed=1")
    typed.run(*train, *SMALL)
    typed.run(*line(QUICKSTART, "cast-ray train --resume"), "steps=2")
    return typed


def test_a_run_is_made_and_gone_on_with(session: Session) -> None:
    run = RunDirectory(session.folder / "runs" / "second")
    assert json.loads(run.summary.read_text())["steps"] == 2
    assert "</html>" in run.report.read_text()


def test_the_run_is_looked_at(session: Session) -> None:
    with session.running(line(QUICKSTART, "cast-ray view")) as here:
        assert "second" in httpx.get(f"http://{here}/api/runs", timeout=60).text


def test_the_run_is_judged_and_played_again(session: Session) -> None:
    said = session.run(
        *line(QUICKSTART, "cast-ray eval --model runs/second"), "--limit", "4", "--attempts", "1"
    )
    assert "mini-unseen" in said
    session.run(*line(QUICKSTART, "cast-ray replay"))


def test_the_run_is_served_and_both_clients_of_the_page_are_answered(session: Session) -> None:
    assert f"```sh\n{shlex.join(SERVE)} " in SERVICE
    (session.folder / "runs" / "mine").symlink_to("second")
    with session.running(SERVE) as here:
        [code] = re.findall(r"^```python\n(.*?)^```$", SERVICE, re.M | re.S)
        code = code.replace("127.0.0.1:8000", here) + "\nprint(answer.choices[0].finish_reason)\n"
        assert session.run(sys.executable, "-c", code).strip() in ("stop", "length")
        [curl] = re.findall(r"^```sh\n(curl .*?)^```$", SERVICE, re.M | re.S)
        told = session.run(
            "bash", "-c", curl.replace("curl localhost:8000", f"curl --fail -sS {here}")
        )
        assert '"regret"' in told
