"""Commands typed in a folder, as by a user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.installed import environment_with
from tests.support.ports import free_port
from tests.support.waiting import wait_until


class Session:
    """A folder in which commands are typed."""

    def __init__(self, folder: Path, *packages: Path) -> None:
        """Take an empty folder, and folders whose packages are installed."""
        self.folder = folder
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # A Ray of the test session must not be joined.
        self._environment = environment_with(*packages)
        self._environment.pop("RAY_ADDRESS", None)
        self._environment["PATH"] = tools

    def run(self, *command: str) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, command: list[str]) -> Iterator[str]:
        """Run a command that serves until Ctrl-C; yield its address when it says that it does."""
        port, said = free_port(), self.folder / "said.txt"
        with open(said, "w") as file:
            process = subprocess.Popen(
                [*command, f"--port={port}"],
                cwd=self.folder,
                env=self._environment,
                stdout=file,
                stderr=file,
            )

        def is_up() -> bool:
            assert process.poll() is None, said.read_text()
            return "Ctrl-C ends it" in said.read_text()

        try:
            wait_until(is_up, timeout_s=300, what=" ".join(command))
            yield f"127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=120)
