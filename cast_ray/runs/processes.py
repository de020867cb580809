"""Identify the process that owns something, so that nothing still in use is removed.

A process id is not enough: ids are reused, other hosts and containers have their own, and files
that record them are copied.
"""

from __future__ import annotations

import os
import socket
from dataclasses import astuple, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process among all that ever ran; as text one word per field."""

    host: str
    """For people."""
    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    """Clock ticks after the host's start."""

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """Return that of the process that calls."""
        started = _started(os.getpid())
        assert started is not None
        return cls(
            host=socket.gethostname(),
            boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            pid_namespace=os.readlink("/proc/self/ns/pid"),
            pid=os.getpid(),
            started=started,
        )

    @classmethod
    def from_text(cls, text: str) -> ProcessIdentity | None:
        """Return what ``str`` wrote; None for any other text."""
        try:
            host, boot_id, namespace, pid, started = text.split()
            number, ticks = int(pid), int(started)
        except ValueError:
            return None
        return cls(host=host, boot_id=boot_id, pid_namespace=namespace, pid=number, started=ticks)

    def is_alive(self) -> bool | None:
        """Return whether the process is there; None if it cannot be seen from here."""
        here = ProcessIdentity.of_this_process()
        if (self.boot_id, self.pid_namespace) != (here.boot_id, here.pid_namespace):
            return None
        return _started(self.pid) == self.started


def _started(pid: int) -> int | None:
    """Return when a process started; None if there is none, or it has ended as a zombie."""
    try:
        # Behind the name, which may hold anything: state, 18 numbers, then the start.
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(numbers[18])


def start_line(name: str, address: str) -> str:
    """Return a line that says that this process has started a run at an address."""
    return f"{name}\t{ProcessIdentity.of_this_process()}\t{address}"


def ended_starts(lines: str, address: str) -> list[str]:
    """Return the names of the starts whose process has ended, or is this one, in their order.

    A copy of a run directory has its original's starts, whose process may be alive. One that cannot
    be seen from here, of another host, has ended if it started at this address: it would hold the
    lock. A line of an earlier version says too little: unknown is not ended.
    """
    me, ended = ProcessIdentity.of_this_process(), []
    for line in lines.splitlines():
        name, _, rest = line.partition("\t")
        identity, _, place = rest.partition("\t")
        process = ProcessIdentity.from_text(identity)
        is_alive = process and process.is_alive()
        if process and (process == me or (place == address if is_alive is None else not is_alive)):
            ended.append(name)
    return ended
