"""A process beside an engine that outlives it by a moment, to end what it leaves behind.

A replica that is killed with SIGKILL runs no clean-up. Its processes may be at any stage then,
still importing vLLM, paused, or stopped, so nothing that they would have to do themselves is
relied upon: this process waits until the replica is gone and kills what carries its mark.

Run by path and with the standard library alone, so that it starts in any environment:
``python -I -S orphan_killer.py <mark>``, with a pipe from the replica as standard input.
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
    """Wait for the end of the parent, then kill all processes with ``mark``, a NAME=value."""
    # A signal to the replica's process group, such as Ctrl-C, is not for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    # The pipe may be held open by a process that the replica forked, hence the parent's id too.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], POLL_S)
        if readable and not os.read(0, 1):
            break
    quiet = 0
    # More than once: what is just being started is not to be seen in the first look.
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
    """Return the processes that were started with ``mark`` in their environment."""
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
