"""A sweep of eight trials through Ray Tune, each an actor that writes what a run writes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import psutil
import pytest

from cast_ray.errors import RunDirectoryError
from cast_ray.evaluation.experiments.sweep import run_sweep
from cast_ray.evaluation.experiments.sweep_plan import plan_sweep
from tests.support.scripted_trial import CONTROL, FAILURE, ScriptedTrial, events
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

GRID = ["advantage.alpha=0,0.5", "rollout.group_size=4,8", "seed=0,1"]
FIXED = ["steps=2"]
FAILING = ["alpha=0.5", "group_size=8", "seed=1"]
DYING = ["alpha=0", "group_size=4", "seed=0"]
DYING_NAME = "alpha=0_group_size=4_seed=0"
FAILING_NAME = "alpha=0.5_group_size=8_seed=1"
AT_ONCE = 3


def most_together(control: Path) -> int:
    """Return how many runs there were at once, at most."""
    running: set[str] = set()
    most = 0
    for event in events(control):
        # One that was killed has not ended, and begins again.
        (running.add if event["what"] == "begins" else running.discard)(event["run"])
        most = max(most, len(running))
    return most


def begun(control: Path) -> list[str]:
    return [event["run"] for event in events(control) if event["what"] == "begins"]


def test_eight_trials_end_in_one_table_and_one_picture_and_the_failed_one_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, out = tmp_path / "control", tmp_path / "sweep"
    control.mkdir()
    plan = plan_sweep(None, [*GRID, *FIXED])
    monkeypatch.setenv(CONTROL, str(control))
    (control / "fails").write_text("\n".join(FAILING))
    (control / "dies").write_text("\n".join(DYING))

    failures = run_sweep(plan, file=None, out=out, at_once=AT_ONCE, trial=ScriptedTrial)

    assert list(failures) == [FAILING_NAME]
    names = {trial.name for trial in plan.trials}
    assert len(names) == 8
    # One warm start, before everything else; every trial begins with what it taught.
    assert begun(control)[0] == "start"
    # The one whose process was killed is started again, and goes on where it was.
    assert sorted(begun(control)[1:]) == sorted([*names, DYING_NAME])
    again = [e for e in events(control) if e["run"] == DYING_NAME and e["what"] == "begins"]
    assert [event["resumes"] for event in again] == [False, True]
    for event in events(control):
        if event["run"] != "start":
            taught = str(out / "start" / "start_model")
            assert (event["path"], event["warm_start"], event["steps"]) == (taught, 0, 2)
        assert event["directory"] == str(Path.cwd())  # a relative path means the same in a trial
    assert 1 < most_together(control) <= AT_ONCE

    table = pl.read_parquet(out / "results.parquet")
    rows = {row["name"]: row for row in table.to_dicts()}
    assert set(rows) == names
    failed = rows.pop(FAILING_NAME)
    assert failed["failure"] == FAILURE
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
    run_sweep(plan, file=None, out=out, at_once=AT_ONCE, trial=ScriptedTrial)
    again = events(control)[before:]
    assert {event["run"] for event in again} == {FAILING_NAME}
    assert again[0]["resumes"]
    assert pl.read_parquet(out / "results.parquet")["failure"].null_count() == 8
    assert "did not end" not in (out / "results.svg").read_text()

    # One seed more: its trials alone are run, from the same start model.
    before = len(events(control))
    more = plan_sweep(None, [*GRID[:2], "seed=0,1,2", *FIXED])
    run_sweep(more, file=None, out=out, at_once=AT_ONCE, trial=ScriptedTrial)
    assert {event["run"] for event in events(control)[before:]} == {
        trial.name for trial in more.trials
    } - names
    assert pl.read_parquet(out / "results.parquet").height == 12
    with pytest.raises(RunDirectoryError, match=r"another sweep.*--out"):
        run_sweep(plan, file=None, out=out, at_once=AT_ONCE, trial=ScriptedTrial)


_STOPPED = """
import sys
from pathlib import Path
from cast_ray.evaluation.experiments.sweep import run_sweep
from cast_ray.evaluation.experiments.sweep_plan import plan_sweep
from tests.support.waiting import wait_until
from tests.support.scripted_trial import ScriptedTrial

try:
    run_sweep(
        plan_sweep(None, sys.argv[2:]),
        file=None,
        out=Path(sys.argv[1]),
        at_once=2,
        trial=ScriptedTrial,
    )
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_sweep_that_is_stopped_says_so_leaves_nobody_behind_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, out = tmp_path / "control", tmp_path / "sweep"
    control.mkdir()
    monkeypatch.setenv(CONTROL, str(control))
    (control / "hangs").write_text("seed=1")  # it has no result when the sweep is stopped
    given = ["seed=0,1", *FIXED]
    sweep = subprocess.Popen([sys.executable, "-c", _STOPPED, str(out), *given])
    try:
        metrics = out / "trials" / "seed=0" / "metrics.parquet"
        wait_until(metrics.is_file, timeout_s=120, what="the first trial takes a step")
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(timeout=60) == 130
    finally:
        sweep.kill()
    first = next(event for event in events(control) if event["run"] == "seed=0")
    wait_until(lambda: not psutil.pid_exists(first["pid"]), timeout_s=30, what="its run ends")
    assert pl.read_parquet(out / "results.parquet")["after"].null_count() == 2

    (control / "hangs").unlink()
    plan = plan_sweep(None, given)
    assert run_sweep(plan, file=None, out=out, at_once=1, trial=ScriptedTrial) == {}
    assert begun(control).count("start") == 1
    assert pl.read_parquet(out / "results.parquet")["after"].to_list() == [0.6, 0.6]
