"""The supervisor with drivers' doubles: small scripts that log steps and end in their own way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from cast_ray.training.supervisor import INTERRUPTED, supervise
from tests.support.waiting import wait_until

DRIVER = """
import os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[1])
resumed = "--resume" in sys.argv
(run / "trajectories").mkdir(parents=True, exist_ok=True)
(run / "config.yaml").touch()
starts = run / "starts"
number = len(starts.read_text().splitlines()) if starts.exists() else 0
lost_at = os.environ.get("CAST_RAY_DRIVER_LOST_AT", "")
with starts.open("a") as file:
    file.write(f"{resumed} {lost_at} {os.getpid()}\\n")

def take_step():
    done = len(list((run / "trajectories").iterdir()))
    (run / "trajectories" / f"step-{done + 1:05d}.parquet").touch()
"""


def driver(tmp_path: Path, what_it_does: str) -> list[str]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER + textwrap.dedent(what_it_does))
    return [sys.executable, str(script), str(tmp_path / "run")]


def starts(tmp_path: Path) -> list[list[str]]:
    return [line.split(" ") for line in (tmp_path / "run" / "starts").read_text().splitlines()]


def run(tmp_path: Path, what_it_does: str, *, max_restarts: int = 2) -> int:
    return supervise(
        driver(tmp_path, what_it_does),
        run_dir=tmp_path / "run",
        resume=False,
        max_restarts=max_restarts,
        first_delay_s=0.01,
    )


def test_killed_driver_is_resumed_and_told_when_it_was_lost(tmp_path: Path) -> None:
    began = time.time()
    code = run(tmp_path, "take_step(); number < 1 and os.kill(os.getpid(), signal.SIGKILL)")
    assert code == 0
    (first, lost_never, _), (second, lost_at, _) = starts(tmp_path)
    assert (first, lost_never, second) == ("False", "", "True")
    assert began <= float(lost_at) <= time.time()


def test_driver_that_takes_steps_may_die_more_often_than_the_bound(tmp_path: Path) -> None:
    dies = f"take_step(); sys.exit({INTERRUPTED} if number < 5 else 0)"
    assert run(tmp_path, dies, max_restarts=2) == 0
    assert len(starts(tmp_path)) == 6


def test_driver_that_gets_nowhere_is_given_up(tmp_path: Path) -> None:
    assert run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", max_restarts=2) == 128 + 9
    assert len(starts(tmp_path)) == 3


@pytest.mark.parametrize("code", [0, 2, 130])
def test_driver_that_is_done_or_refused_is_left_alone(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, f"take_step(); sys.exit({code})") == code
    assert len(starts(tmp_path)) == 1


def test_failure_before_anything_was_reached_is_not_repeated(tmp_path: Path) -> None:
    assert run(tmp_path, "sys.exit(1)") == 1
    assert len(starts(tmp_path)) == 1


def _supervised(tmp_path: Path, what_it_does: str, **env: str) -> subprocess.Popen[bytes]:
    """Start a supervisor in a process of its own and wait until its driver is there."""
    call = (
        "import sys, pathlib; from cast_ray.training.supervisor import supervise; "
        "sys.exit(supervise(sys.argv[2:], run_dir=pathlib.Path(sys.argv[1]), resume=False, "
        "max_restarts=3))"
    )
    command = driver(tmp_path, what_it_does)
    process = subprocess.Popen(
        [sys.executable, "-c", call, str(tmp_path / "run"), *command], env={**os.environ, **env}
    )
    _wait_for(tmp_path / "run" / "ready")
    return process


def _wait_for(file: Path) -> None:
    wait_until(file.exists, timeout_s=30, what=str(file))


# After the first signal it stays half a second: a second one that should not come would come then.
COUNTS_SIGNALS = """
    got = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: got.append(number))
    (run / "ready").touch()
    while not got:
        time.sleep(0.02)
    (run / "first").touch()
    time.sleep(0.5)
    (run / "got").write_text(str([int(number) for number in got]))
    sys.exit(130)
"""
IN_A_RAY_JOB = {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}


@pytest.mark.parametrize(
    ("number", "env"),
    [(signal.SIGINT, {}), (signal.SIGTERM, {}), (signal.SIGINT, IN_A_RAY_JOB)],
)
def test_signals_go_on_to_the_driver_once(
    tmp_path: Path, number: signal.Signals, env: dict[str, str]
) -> None:
    process = _supervised(tmp_path, COUNTS_SIGNALS, **env)
    process.send_signal(number)
    assert process.wait(timeout=30) == 130
    assert (tmp_path / "run" / "got").read_text() == str([int(number)])
    assert len(starts(tmp_path)) == 1


def test_stop_of_a_ray_job_which_signals_all_processes_reaches_the_driver_once(
    tmp_path: Path,
) -> None:
    process = _supervised(tmp_path, COUNTS_SIGNALS, **IN_A_RAY_JOB)
    os.kill(int(starts(tmp_path)[0][2]), signal.SIGTERM)
    _wait_for(tmp_path / "run" / "first")  # or the two would become one
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert (tmp_path / "run" / "got").read_text() == str([int(signal.SIGTERM)])
    assert len(starts(tmp_path)) == 1


def test_driver_that_a_signal_kills_is_not_started_again(tmp_path: Path) -> None:
    process = _supervised(tmp_path, '(run / "ready").touch(); time.sleep(60)')
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert len(starts(tmp_path)) == 1


def test_driver_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    process = _supervised(
        tmp_path,
        """
        from cast_ray.training.supervisor import exit_with_parent
        exit_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
        (run / "ready").touch()
        time.sleep(60)
        """,
    )
    child = psutil.Process(int(starts(tmp_path)[0][2]))
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    child.wait(timeout=30)


def test_supervisor_of_a_trial_ends_its_driver_and_itself_when_the_trial_is_killed(
    tmp_path: Path,
) -> None:
    trial = subprocess.Popen(["sleep", "60"])
    process = _supervised(tmp_path, COUNTS_SIGNALS, CAST_RAY_ENDS_WITH=str(trial.pid))
    trial.kill()
    trial.wait()
    assert process.wait(timeout=30) == 130
    assert (tmp_path / "run" / "got").read_text() == str([int(signal.SIGINT)])
