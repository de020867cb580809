"""A process that briefly outlives an engine's replica, to kill what the replica leaves behind.

A replica killed with SIGKILL runs no clean-up. Its processes may be in any state then, still
importing vLLM, paused or stopped, so nothing is left for them to do: this process waits until the
replica is gone and kills every process that carries its mark.

Run by path and with the standard library alone, so that it starts in any environment:
``python -I -S orphan_killer.py <mark>``, with a pipe from the replica as standard input. Hence
``/proc`` instead of psutil.
"""

import os
import select
import signal
import sys
import time

POLL_S = 0.5
QUIET_SCANS = 5
SCAN_S = 0.2


def main(mark: str) -> None:
    """Wait for the parent's end, then kill all processes with ``mark``, a NAME=value."""
    # A signal to the replica's process group, such as Ctrl-C, is not for this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    # A process that the replica forked may hold the pipe open, hence the parent's id too.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], POLL_S)
        if readable and not os.read(0, 1):
            break
    quiet = 0
    # Several scans: a process that is just starting is not visible in the first one.
    while quiet < QUIET_SCANS:
        found = [pid for pid in marked(mark.encode()) if not is_tracker(pid)]
        kill(found)
        quiet = 0 if found else quiet + 1
        time.sleep(SCAN_S)
    kill(marked(mark.encode()))


def kill(pids: list[int]) -> None:
    """Kill processes, some of which may be gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def is_tracker(pid: int) -> bool:
    """Return whether a process is multiprocessing's resource tracker.

    It ends by itself once all that use it are gone, and removes their semaphores from /dev/shm.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.resource_tracker" in file.read()
    except OSError:  # gone
        return False


def marked(mark: bytes) -> list[int]:
    """Return the ids of the processes that were started with ``mark`` in their environment."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:  # another user's, or gone
                continue
    return found


if __name__ == "__main__":
    main(sys.argv[1])
