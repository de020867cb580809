"""The first error of a process that dies after its start, told by who started it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from serve.engine import overheard
from serve.engine.first_error import first_error
from serve.engine.overheard import Overheard
from tests.support.waiting import wait_until

CORE = """
import logging, sys
print("core is up", flush=True)
for line in sys.stdin:
    try:
        exec(line)
    except OSError:
        logging.exception("survived")
"""
KILLED = "see the engine's log"


class Core:
    """A real child process that does what it is told, and writes as vLLM's core does."""

    def __init__(self) -> None:
        with Overheard() as self.heard:
            self._process = subprocess.Popen([sys.executable, "-c", CORE], stdin=subprocess.PIPE)
            self.say("print('asked', flush=True)")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def test_error_of_the_first_request_long_after_the_start_is_the_cause() -> None:
    core = Core()
    assert core.heard.first_error() == ""

    core.say("raise RuntimeError('Unsupported CPU attention configuration: head_dim=16')")
    core.end()

    cause = "RuntimeError: Unsupported CPU attention configuration: head_dim=16"
    assert core.heard.cause_of_death == cause


def test_error_of_a_grandchild_is_the_first() -> None:
    """A worker fails, and the core then fails because of it."""
    core = Core()
    core.say("import subprocess, sys")
    core.say("subprocess.run([sys.executable, '-c', 'raise MemoryError(3)'])")
    core.say("raise ValueError('worker failed, see above')")
    core.end()
    assert core.heard.cause_of_death == "MemoryError: 3"


class Clock:
    """Stands in for the module ``time``; does not advance by itself."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_error_that_was_survived_long_before_is_not_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(overheard, "time", clock)
    core = Core()
    core.say("raise OSError('an update failed')")
    wait_until(core.heard.first_error, timeout_s=30, what="the first error")
    clock.now = 100.0
    core.say("raise KeyError('now')")
    core.end()
    assert core.heard.cause_of_death == "KeyError: 'now'"


def test_process_that_wrote_nothing_is_said_to_have_been_killed() -> None:
    core = Core()
    core.say("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    core.end()
    assert KILLED in core.heard.cause_of_death


def test_what_is_kept_is_bounded_and_the_newest() -> None:
    core = Core()
    core.say("print(('x' * 999 + '\\n') * 5000, flush=True)")
    core.say("raise RuntimeError('after five megabytes')")
    core.end()
    assert core.heard.cause_of_death == "RuntimeError: after five megabytes"
    kept = b"".join(data for _, data in core.heard._heard)
    assert len(kept) <= 2**20 and b"core is up" not in kept


def test_what_is_overheard_still_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    core = Core()
    core.say("print('a later line', flush=True)")
    core.end()
    core.heard.first_error()
    os.write(2, b"back again\n")
    written = capfd.readouterr().err
    assert all(line in written for line in ("core is up", "asked", "a later line", "back again"))


def test_exception_of_cpp_that_aborts_is_an_error() -> None:
    written = """terminate called after throwing an instance of 'c10::Error'
  what():  Unsupported CPU attention configuration: head_dim=16
Exception raised from get_impl at cpu_attn.cpp:3 (most recent call first):
RuntimeError: worker died
"""
    assert first_error(written) == "Unsupported CPU attention configuration: head_dim=16"
