"""A double of ``cast-ray train`` for sweeps: it trains nothing and writes what a run writes.

    python -P -m tests.support.scripted_train CONTROL [--config FILE] key=value run_dir=… [--resume]

``CONTROL_DIR/events.jsonl`` gets a line when a run begins and when it ends. Runs whose arguments
hold all words of ``CONTROL_DIR/fails`` end after their first step with an error; while
``CONTROL_DIR/hangs`` is there, runs go on until they are told to stop.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cast_ray.runs.metrics import write_metrics
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.supervisor import exit_with_parent
from tests.support.made_up_run import step_row

STEP_S = 0.3
FAILURE = "cast-ray: this double was told to fail"


def command(control: Path) -> list[str]:
    """Return the command of this double, before a run's arguments."""
    return [sys.executable, "-P", "-m", "tests.support.scripted_train", str(control)]


def events(control: Path) -> list[dict[str, Any]]:
    """Return what has been noted so far: ``what``, ``run``, ``pid``, ``directory``,
    ``arguments``."""
    path = control / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _note(control: Path, what: str, run: RunDirectory, arguments: list[str]) -> None:
    event = {
        "what": what,
        "run": run.path.name,
        "pid": os.getpid(),
        "directory": os.getcwd(),
        "arguments": arguments,
    }
    with open(control / "events.jsonl", "a") as file:
        file.write(json.dumps(event) + "\n")


def _run(control: Path, arguments: list[str]) -> int:
    exit_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    given = dict(one.split("=", 1) for one in arguments if "=" in one)
    run = RunDirectory(Path(given["run_dir"]))
    run.path.mkdir(parents=True, exist_ok=True)
    (run.path / "config.yaml").write_text("of a double\n")
    _note(control, "begins", run, arguments)
    fails = control / "fails"
    rows = []
    for step in range(1, int(given["steps"]) + 1):
        time.sleep(STEP_S)  # what a step takes
        success = float(given.get("advantage.alpha", 0)) + 0.1 * step
        rows.append(step_row(step, success=success, seconds_total=STEP_S))
        write_metrics(run.metrics, rows)
        if fails.is_file() and set(fails.read_text().split()) <= set(arguments):
            print(FAILURE, file=sys.stderr)
            _note(control, "ends", run, arguments)
            return 3
    while rows and (control / "hangs").is_file():
        time.sleep(0.1)  # for as long as the test wants it to hang
    shares = {"success": 0.5, "low": 0.4, "high": 0.6, "n": 100}
    run.write_summary(
        {"steps": len(rows), "seconds": 1.0, "before": shares, "after": shares | {"success": 0.6}}
    )
    _note(control, "ends", run, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1]), sys.argv[2:]))
