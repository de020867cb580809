"""The process behind ``cast-ray train``: it runs the driver as its child and restarts it.

A driver may die for any reason, SIGKILL included. What it played and learned is in the run
directory, so the next one resumes from there. This process only waits: it imports neither Ray nor
torch.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from cast_ray.cluster.inside_job import is_ray_job
from serve.orphans import when_ended

logger = logging.getLogger(__name__)

INTERRUPTED = 75
"""Exit code of a driver that lost a part of the run for good (EX_TEMPFAIL)."""
_FINAL = (0, 2, 130)
"""Exit codes that are final: done, refused with a message, stopped by the user."""
_MAX_DELAY_S = 60.0
_LOST_AT = "CAST_RAY_DRIVER_LOST_AT"
_ENDS_WITH = "CAST_RAY_ENDS_WITH"
"""Process id of the process that this one must not outlive."""


def train_command(arguments: Sequence[str]) -> list[str]:
    """Return the command of ``cast-ray train`` with these arguments."""
    # -P: as for the command itself, the working directory is not on the import path.
    return [sys.executable, "-P", "-m", "cast_ray.cli", "train", *arguments]


def supervise(
    command: Sequence[str],
    *,
    run_dir: Path,
    resume: bool,
    max_restarts: int,
    first_delay_s: float = 1.0,
) -> int:
    """Run the driver until its exit code is final, and return that.

    SIGINT and SIGTERM are passed on to the driver, which ends after its step; SIGTERM is not in a
    Ray job, where the driver gets its own. If this process must not outlive its parent
    (``ends_with_me``), the parent's end counts as SIGINT.

    Args:
        command: of the driver, without ``--resume``.
        run_dir: of the run; its files show whether the driver made progress.
        resume: whether the first driver resumes.
        max_restarts: in a row, without a step in between.
        first_delay_s: before the first restart in a row; each next one waits twice as long.
    """
    restarts, done, lost_at = 0, _steps_logged(run_dir), None
    exit_with_parent(lambda: os.kill(os.getpid(), signal.SIGINT))
    while True:
        code = _run_driver(command, resume=resume, lost_at=lost_at)
        if code in _FINAL:
            return code
        lost_at = time.time()
        restarts = 0 if _steps_logged(run_dir) > done else restarts
        done = _steps_logged(run_dir)
        # A driver that refused to start would do so again.
        was_up = (run_dir / "evaluations" / "before.parquet").is_file()
        began = code < 0 or code == INTERRUPTED or done > 0 or was_up
        if restarts >= max_restarts or not began:
            return code if code > 0 else 128 - code
        delay = min(first_delay_s * 2**restarts, _MAX_DELAY_S)
        restarts += 1
        resume = resume or (run_dir / "config.yaml").is_file()
        logger.warning(
            "the driver ended with %s after step %d; restarting it in %.0f s (%d of %d)",
            _in_words(code),
            done,
            delay,
            restarts,
            max_restarts,
        )
        time.sleep(delay)


def _run_driver(command: Sequence[str], *, resume: bool, lost_at: float | None) -> int:
    """Run one driver to its end and return its exit code; below 0 = ended by that signal."""
    environment = {**os.environ, **ends_with_me()}
    if lost_at is not None:
        environment[_LOST_AT] = str(lost_at)
    driver: subprocess.Popen[bytes] | None = None
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        # Stopping a Ray job signals every process of the job, and a second signal would end the
        # driver in the middle of its step.
        has_it = number == signal.SIGTERM and is_ray_job()
        if driver is not None and not has_it:
            driver.send_signal(number)

    previous = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        # In a new process group: Ctrl-C reaches it once, through this process.
        driver = subprocess.Popen(
            [*command, *(["--resume"] if resume else [])], env=environment, process_group=0
        )
        for number in asked:  # signals that came before the driver started
            driver.send_signal(number)
        code = driver.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    # A driver that died before it could handle the signal is not restarted either.
    return 130 if asked and code not in _FINAL else code


def ends_with_me() -> dict[str, str]:
    """Return environment variables for a child process that must not outlive this one."""
    return {_ENDS_WITH: str(os.getpid())}


def exit_with_parent(end: Callable[[], None]) -> None:
    """Call ``end`` once the process that this one must not outlive is gone.

    A driver must not outlive its supervisor, and the supervisor of a sweep's trial not the trial.
    """
    if pid := os.environ.get(_ENDS_WITH):
        when_ended(int(pid), end)


def driver_lost_at() -> float | None:
    """Return when the driver that this one replaces was lost; None = it replaces none."""
    found = os.environ.get(_LOST_AT)
    return None if found is None else float(found)


def _steps_logged(run_dir: Path) -> int:
    return len(list((run_dir / "trajectories").glob("step-*.parquet")))


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
