"""Which processes listen at all addresses of the machine, and with them to its network."""

from __future__ import annotations

import os
import re
from contextlib import suppress

import psutil

OPEN_TO_ALL = {"ray::ServeReplica"}
"""What SECURITY.md names: Serve has no option for the address of this port."""


def without_cluster(**changes: str) -> dict[str, str]:
    """Return this environment with changes, and without the address of a Ray to be joined."""
    return {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | changes


def open_to_all(pid: int) -> dict[str, set[int]]:
    """Return the ports at which a process and all below it listen at all addresses, by title."""
    root, found = psutil.Process(pid), dict[str, set[int]]()
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # covers a zombie
            sockets = process.net_connections("tcp")
            title = " ".join(process.cmdline())
            for each in sockets if title else ():  # one that is ending has none
                if each.status == psutil.CONN_LISTEN and each.laddr.ip in ("0.0.0.0", "::"):
                    # ray::ServeReplica:APPLICATION:…, the class of a replica of Serve.
                    name = re.match(r"ray::\w+|.*", title)[0]
                    found.setdefault(name, set()).add(each.laddr.port)
    return found
