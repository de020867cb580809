"""Processes of the tests' own tree, any of which may end while one looks at it."""

from __future__ import annotations

import psutil


def processes_below(pid: int | None = None, *, title: str) -> list[psutil.Process]:
    """Return those below a process (default: this one) whose title or command contains ``title``.

    One that ends meanwhile is left out, as one that had ended before.
    """
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            # The kernel's name has 15 characters; Ray and vLLM write the whole one here.
            if title in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:  # covers a zombie
            continue
    return found
