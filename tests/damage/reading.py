"""Reads files in another process: native parsers may abort, hang or ask for all memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self


class Outcome(NamedTuple):
    """How reading a file ended."""

    end: str
    """``read``, ``refused``, ``raised`` or ``aborted``."""
    said: str
    """A digest of the value, the message, the traceback, or the exit status."""


class Reading:
    """The process, started again after it has aborted."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def read(self, kind: str, path: Path, *, is_deep: bool = False) -> Outcome:
        """Have a file read; by the kind's other readers too if ``is_deep``."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.damage.reader"],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([kind, str(path), is_deep]) + "\n")
        self._process.stdin.flush()
        if line := self._process.stdout.readline():
            return Outcome(*json.loads(line))
        status = self._process.wait()
        self._process = None
        return Outcome("aborted", f"exit status {status}")
