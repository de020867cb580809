"""Processes that must not outlive the one that started them.

A process killed with SIGKILL runs no clean-up. What it started would run on for minutes, with its
memory and its share of the cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path

import psutil

MARK = "CAST_RAY_GUARDED"
_POLL_S = 0.2

_killers: list[subprocess.Popen[bytes]] = []
"""Kept for the life of this process: a killer whose pipe closes takes this process for dead."""


def guard_children() -> None:
    """Have all processes that this one starts from now on killed soon after it has ended.

    However it ends and whatever they are doing then: another process waits for it.
    """
    if MARK in os.environ:
        return
    killer = Path(__file__).with_name("orphan_killer.py")
    value = uuid.uuid4().hex
    process = subprocess.Popen(
        # By path: a Ray worker's import path is not in its environment.
        [sys.executable, "-I", "-S", str(killer), f"{MARK}={value}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    _killers.append(process)
    os.environ[MARK] = value


def kill_with_parent() -> None:
    """Kill this process as soon as the process that started it by ``multiprocessing`` has ended.

    Does nothing in any other process.
    """
    parent = parent_process()
    if parent is not None and parent.pid is not None:
        when_ended(parent.pid, lambda: os.kill(os.getpid(), signal.SIGKILL))


def when_ended(pid: int, act: Callable[[], object]) -> None:
    """Call ``act`` in a thread when a process has ended; at once if there is none any more."""

    def wait() -> None:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # A killed process that its own parent has not asked for is a zombie: it has ended.
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(_POLL_S)
        act()

    threading.Thread(target=wait, name=f"when {pid} has ended", daemon=True).start()
