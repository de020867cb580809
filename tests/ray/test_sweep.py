"""A sweep of eight trials through Ray Tune, each a process that writes what a run writes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import psutil
import pytest

from cast_ray.jobs.sweep import run_sweep
from cast_ray.jobs.sweep_plan import plan_sweep
from tests.scripted_train import FAILURE, command, events

pytestmark = pytest.mark.ray

GRID = ["advantage.alpha=0,0.5", "rollout.group_size=4,8", "seed=0,1"]
FIXED = ["steps=2"]
FAILING = ["advantage.alpha=0.5", "rollout.group_size=8", "seed=1"]
FAILING_NAME = "alpha=0.5_group_size=8_seed=1"
AT_ONCE = 3
_SWEEP = """
import sys
from pathlib import Path
from cast_ray.jobs.sweep import run_sweep
from cast_ray.jobs.sweep_plan import plan_sweep
from tests.scripted_train import command
control, out = map(Path, sys.argv[1:3])
plan = plan_sweep(None, sys.argv[3:])
run_sweep(plan, file=None, out=out, at_once=2, command=command(control))
"""
END_LIMIT_S = 60.0


def most_together(control: Path) -> int:
    """Return how many runs there were at once, at most."""
    now = most = 0
    for event in events(control):
        now += 1 if event["what"] == "begins" else -1
        most = max(most, now)
    return most


def begun(control: Path) -> list[str]:
    return [event["run"] for event in events(control) if event["what"] == "begins"]


def wait_until(condition: Callable[[], bool], *, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_eight_trials_end_in_one_table_and_one_picture_and_the_failed_one_is_run_again(
    tmp_path: Path,
) -> None:
    control, out = tmp_path / "control", tmp_path / "sweep"
    control.mkdir()
    plan = plan_sweep(None, [*GRID, *FIXED])
    (control / "fails").write_text("\n".join(FAILING))

    place = run_sweep(plan, file=None, out=out, at_once=AT_ONCE, command=command(control))

    assert place == out
    names = {trial.name for trial in plan.trials}
    assert len(names) == 8
    # One warm start, before everything else; every trial begins with what it taught.
    assert begun(control)[0] == "start"
    assert sorted(begun(control)[1:]) == sorted(names)
    for event in events(control):
        if event["run"] != "start":
            taught = f"policy.path={out / 'start' / 'start_model'}"
            assert {taught, "warm_start.steps=0", "steps=2"} <= set(event["arguments"])
    assert 1 < most_together(control) <= AT_ONCE

    table = pl.read_parquet(out / "results.parquet")
    rows = {row["name"]: row for row in table.to_dicts()}
    assert set(rows) == names
    failed = rows.pop(FAILING_NAME)
    assert "exit code 3" in failed["failure"]
    assert FAILURE in failed["failure"]
    assert failed["after"] is None
    assert failed["step"] == [1]
    for row in rows.values():
        assert row["failure"] is None
        assert (row["before"], row["after"], row["step"]) == (0.5, 0.6, [1, 2])
        alpha = float(row["advantage.alpha"])
        assert row["success"] == pytest.approx([alpha + 0.1, alpha + 0.2])
    picture = (out / "results.svg").read_text()
    assert "<!-- alpha 0.5, group_size 8 -->" in picture
    assert "<!-- 1 of 2 did not end -->" in picture

    # The same command again: only what has not ended runs, and goes on with what is there.
    (control / "fails").unlink()
    before = len(events(control))
    run_sweep(plan, file=None, out=out, at_once=AT_ONCE, command=command(control))
    again = events(control)[before:]
    assert {event["run"] for event in again} == {FAILING_NAME}
    assert "--resume" in again[0]["arguments"]
    assert pl.read_parquet(out / "results.parquet")["failure"].null_count() == 8
    assert "did not end" not in (out / "results.svg").read_text()


def test_an_interrupted_sweep_leaves_no_run_behind(tmp_path: Path) -> None:
    control, out = tmp_path / "control", tmp_path / "sweep"
    control.mkdir()
    (control / "hangs").touch()
    sweep = subprocess.Popen(
        [sys.executable, "-c", _SWEEP, str(control), str(out), *GRID, *FIXED],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(begun(control)) == 3, limit_s=180)  # the warm start, and two
        pids = [event["pid"] for event in events(control)[-2:]]
        assert all(psutil.pid_exists(pid) for pid in pids)
        sweep.send_signal(signal.SIGINT)
        sweep.wait(END_LIMIT_S)
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), limit_s=END_LIMIT_S)
    finally:
        if sweep.poll() is None:
            sweep.kill()
        (control / "hangs").unlink()
    assert len(begun(control)) == 3
