"""Processes that must not outlive the one that started them.

An engine's processes are started by a replica. A replica that is killed with SIGKILL runs no
clean-up, and they would go on for minutes, with their memory and their share of the cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from multiprocessing import parent_process
from pathlib import Path

MARK = "CAST_RAY_GUARDED"

_guardians: list[subprocess.Popen[bytes]] = []
"""Kept for the life of the process: a guardian whose pipe is closed takes its parent for dead."""


def guard_children() -> None:
    """Have all processes that this one starts from now on killed soon after it has ended.

    Whatever its end and whatever they do by then. A process of its own waits for it.
    """
    if MARK in os.environ:
        return
    guardian = Path(__file__).with_name("orphan_killer.py")
    value = uuid.uuid4().hex
    process = subprocess.Popen(
        # By path: a Ray worker's import path is not in its environment.
        [sys.executable, "-I", "-S", str(guardian), f"{MARK}={value}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    _guardians.append(process)
    os.environ[MARK] = value


def end_with_parent() -> None:
    """End this process, at once, when the process that started it has ended.

    Does nothing in a process that was not started by ``multiprocessing``.
    """
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end_with_parent", daemon=True).start()
