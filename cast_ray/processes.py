"""Which process something belongs to, so that nothing of a living one is taken for a left-over.

A process id alone says little: numbers are used again, other hosts and containers have their own,
and files with them are copied.
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
