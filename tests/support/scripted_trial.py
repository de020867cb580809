"""A double of ``SweepTrial``: it trains nothing and writes what a run writes.

``CONTROL/events.jsonl`` gets a line when a run begins and when it ends. While ``CONTROL/fails``
exists, a run whose values it holds fails in its second step; ``CONTROL/dies`` is the same for a
process that is killed, once; while ``CONTROL/hangs`` is there, runs do not get beyond their first
and the run whose values it holds does not begin.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import tune

from cast_ray.config.load import save_config
from cast_ray.config.train import TrainConfig
from cast_ray.runs.metrics import read_metrics, write_metrics
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.algorithm.config import AlgorithmConfig
from tests.support.made_up_run import step_row

STEP_S = 0.3
FAILURE = "this double was told to fail"
CONTROL = "SCRIPTED_TRIAL_CONTROL"
"""The variable with the folder; Ray's workers inherit it."""


def events(control: Path) -> list[dict[str, Any]]:
    """Return what has been noted: ``what``, ``run``, ``pid``, ``directory``, ``values``."""
    path = control / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


class ScriptedTrial(tune.Trainable):
    """Takes a trial's configuration as ``SweepTrial`` does."""

    _config: TrainConfig

    def setup(self, config: dict[str, Any]) -> None:
        job = config["trial"]
        os.chdir(job["directory"])
        self._control = Path(os.environ[CONTROL])
        self._config = AlgorithmConfig.from_dict(job["values"]).validate()
        self._run = RunDirectory(Path(self._config.run_dir))
        self._has_begun = False
        self._hang(when=self._is_told("hangs"))

    def step(self) -> dict[str, Any]:
        run, config = self._run, self._config
        if run.summary.is_file():
            return {"done": True, "cast_ray": {"step": config.steps}}
        if not self._has_begun:
            self._has_begun = True
            self._note("begins")
            run.path.mkdir(parents=True, exist_ok=True)
            save_config(config, run.config)
        rows = read_metrics(run.metrics) if run.metrics.is_file() else []
        self._hang(when=bool(rows))
        if rows and self._is_told("fails"):
            self._note("ends")
            return {"done": True, "failure": FAILURE}
        if rows and self._is_told("dies"):
            (self._control / "dies").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        result: dict[str, Any] = {"done": len(rows) + 1 >= config.steps}
        if config.steps:
            time.sleep(STEP_S)  # what a step takes
            success = config.advantage.alpha + 0.1 * (len(rows) + 1)
            rows.append(step_row(len(rows) + 1, success=success, seconds_total=STEP_S))
            write_metrics(run.metrics, rows)
            result["cast_ray"] = asdict(rows[-1])
        if result["done"]:
            self._end(len(rows))
        return result

    def _hang(self, *, when: bool) -> None:
        """Wait for as long as the test wants it to hang."""
        while when and (self._control / "hangs").is_file():
            time.sleep(0.1)

    def _end(self, steps: int) -> None:
        share = {"success": 0.5, "low": 0.4, "high": 0.6, "n": 100}
        summary = {"steps": steps, "seconds": 1.0, "before": share}
        self._run.write_summary(summary | {"after": share | {"success": 0.6}})
        self._note("ends")

    def _is_told(self, what: str) -> bool:
        """Whether the file of that name has values that are all this run's."""
        path = self._control / what
        config = self._config
        mine = {f"alpha={config.advantage.alpha:g}", f"seed={config.seed}"}
        mine.add(f"group_size={config.rollout.group_size}")
        return path.is_file() and set(path.read_text().split()) <= mine

    def _note(self, what: str) -> None:
        event = {
            "what": what,
            "run": self._run.path.name,
            "pid": os.getpid(),
            "directory": os.getcwd(),
            "resumes": self._run.config.is_file(),
            "path": self._config.policy.path,
            "warm_start": self._config.warm_start.steps,
            "steps": self._config.steps,
        }
        with open(self._control / "events.jsonl", "a") as file:
            file.write(json.dumps(event) + "\n")

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing, as ``SweepTrial``."""
