"""What a guarded process has started does not outlive it: real processes, no Ray and no engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until

GONE_S = 10.0

ORPHAN = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
nothing = subprocess.DEVNULL
print(subprocess.Popen(sleep, start_new_session=True, stdout=nothing, stderr=nothing).pid)
"""
PARENT = f"""
import subprocess, sys, time
from serve.orphans import guard_children
guard_children()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
orphan = subprocess.run([sys.executable, "-c", {ORPHAN!r}], stdout=subprocess.PIPE, text=True)
print(child.pid, int(orphan.stdout), flush=True)
time.sleep(600)
"""


@pytest.fixture
def family() -> Iterator[list[psutil.Process]]:
    """Return a guarded process, its child and an orphan that it left, guardian not among them."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        pids = map(int, top.stdout.readline().split())
        processes = [psutil.Process(pid) for pid in (top.pid, *pids)]
        yield processes
        for process in processes:
            if process.is_running():
                process.kill()


def is_deaf(process: psutil.Process) -> bool:
    """Return whether a process ignores SIGTERM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = int(re.search(r"^SigIgn:\s*(\w+)$", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    return bool(ignored >> (signal.SIGTERM - 1) & 1)


def test_stopped_processes_of_a_killed_parent_are_ended(family: list[psutil.Process]) -> None:
    parent, *others = family
    for process in others:  # what is stopped can do nothing for its own end
        process.suspend()
    parent.kill()
    _, alive = psutil.wait_procs(others, timeout=GONE_S)
    assert alive == []


def test_the_guardian_ends_after_its_work(family: list[psutil.Process]) -> None:
    parent, child, _ = family
    [guardian] = [process for process in parent.children() if process != child]
    parent.terminate()
    _, alive = psutil.wait_procs([guardian], timeout=GONE_S)
    assert alive == []


def test_a_signal_to_the_terminal_is_not_for_the_guardian(family: list[psutil.Process]) -> None:
    parent, child, _ = family
    [guardian] = [process for process in parent.children() if process != child]
    # On a busy machine it may still be starting, when nothing is deaf yet.
    wait_until(lambda: is_deaf(guardian), timeout_s=GONE_S, what="the guardian")
    os.kill(guardian.pid, signal.SIGINT)
    os.kill(guardian.pid, signal.SIGTERM)
    parent.kill()
    _, alive = psutil.wait_procs([child], timeout=GONE_S)
    assert alive == []


HOLDER = """
import multiprocessing, time
from serve.orphans import guard_children
guard_children()
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
time.sleep(600)
"""


def test_a_killed_process_leaves_no_semaphore_in_shared_memory() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as holder:
        assert holder.stdout is not None
        semaphore = Path("/dev/shm") / f"sem.{holder.stdout.readline().strip().removeprefix('/')}"
        assert semaphore.exists()
        others = psutil.Process(holder.pid).children()
        holder.kill()
    wait_until(lambda: not semaphore.exists(), timeout_s=GONE_S, what="the semaphore is removed")
    _, alive = psutil.wait_procs(others, timeout=GONE_S)
    assert alive == []
