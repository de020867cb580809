"""A local Ray on a machine that is too busy for Ray's own limits; in a process of its own, since
Ray reads its limits once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

START = """
import ray
from cast_ray.cluster.session import start_ray
start_ray(num_cpus=1, object_store_bytes=100 * 2**20)
print("up with", ray.cluster_resources()["CPU"])
ray.shutdown()
"""
STOP_THE_FIRST_AGENT = """
import threading, time, psutil
def is_agent(process):
    try:
        return any("dashboard/agent.py" in word for word in process.cmdline()[1:3])
    except psutil.NoSuchProcess:
        return False
def stop():
    while not (found := [p for p in psutil.Process().children(recursive=True) if is_agent(p)]):
        time.sleep(0.01)
    found[0].suspend()
    time.sleep(17)
    found[0].kill()  # its raylet has ended, and cannot
threading.Thread(target=stop, daemon=True).start()
"""


def _run(script: str, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=500,
    )
    return done.returncode, done.stdout + done.stderr


def test_ray_whose_agent_was_too_slow_is_started_again() -> None:
    # Ray gives its agent 15 seconds, then the raylet ends itself.
    code, said = _run(STOP_THE_FIRST_AGENT + START, RAY_raylet_start_wait_time_s="20")
    assert code == 0, said
    assert said.count("started again") == 1, said
    assert "up with 1.0" in said


def test_ray_that_never_starts_is_refused_with_the_state_of_the_machine() -> None:
    code, said = _run(START, RAY_TMPDIR="/dev/null/none")
    assert code == 1, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("cast_ray.errors.EnvironmentSetupError"), said
    for fact in ("load average", "cores", "GiB of memory", "GiB in /dev/shm"):
        assert fact in last
