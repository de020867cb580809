"""A real training run whose processes are killed at random while it trains, and what came of it.

``make chaos`` runs it whole: a cluster of three nodes on this machine, 30 steps, every kind of
victim twice. ``tests/ray/training/test_chaos.py`` runs a small form. Kills only what it started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cast_ray.runs.metrics import read_metrics
from cast_ray.runs.recoveries import read_recoveries
from cast_ray.timeouts import use_start_limits
from tests.support.waiting import wait_until

KINDS = ("environment", "oracle", "replica", "core", "learner", "node", "driver")
RECOVERED_AS = {"replica": "engine", "core": "engine"}
"""By the name that the run's log has for it; the others are called the same."""
RECOVERY_TIMEOUT_S = 420.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One victim."""

    kind: str
    pid: int
    step: int
    """Steps done when it was killed."""
    seconds: float
    """From the kill until the run's log has it as recovered."""


@dataclass(slots=True)
class Machines:
    """Ray nodes as processes of this machine; they outlive the run's driver."""

    cluster: Any = None  # ray.cluster_utils.Cluster
    workers: list[Any] = field(default_factory=list)

    @classmethod
    def start(cls, *, num_workers: int, num_cpus: int) -> Machines:
        """Start a head without CPUs for actors, and workers."""
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        use_start_limits()
        from ray.cluster_utils import Cluster  # reads the environment when it is imported

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        machines = cls(cluster)
        for _ in range(num_workers):
            machines.add(num_cpus)
        return machines

    def add(self, num_cpus: int) -> None:
        """Add a worker node."""
        self.workers.append(self.cluster.add_node(num_cpus=num_cpus))

    def raylet(self, index: int) -> psutil.Process:
        """Return the process that all others of a worker node descend from."""
        [raylet] = self.workers[index].all_processes["raylet"]
        return psutil.Process(raylet.process.pid)

    def lose(self, index: int) -> int:
        """Kill every process of a worker node at once, as a power cut does."""
        raylet = self.raylet(index)
        victims = [raylet, *raylet.children(recursive=True)]
        for victim in victims:
            _kill(victim)
        self.cluster.remove_node(self.workers.pop(index), allow_graceful=False)
        return raylet.pid


class Chaos:
    """A run under fire."""

    def __init__(self, run_dir: Path, overrides: list[str], *, machines: Machines | None) -> None:
        """Start ``cast-ray train``.

        Args:
            run_dir: of the run.
            overrides: its configuration.
            machines: where it runs; None = a Ray of its own, which dies with its driver.
        """
        self.run_dir, self.machines = run_dir, machines
        self.kills: list[Kill] = []
        environment = {name: v for name, v in os.environ.items() if name != "RAY_ADDRESS"}
        if machines is not None:
            environment["RAY_ADDRESS"] = machines.cluster.address
        command = [str(Path(sys.executable).parent / "cast-ray"), "train", *overrides]
        self.output = run_dir.with_suffix(".out")
        with open(self.output, "w") as output:
            self._supervisor = psutil.Popen(
                [*command, f"run_dir={run_dir}"],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    @property
    def steps_done(self) -> int:
        """Steps in the run's metrics."""
        rows = read_metrics(self.run_dir / "metrics.parquet")
        return rows[-1].step if rows else 0

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended."""
        return self._supervisor.poll() is None

    def wait_for_step(self, step: int, *, timeout_s: float) -> None:
        """Return when a step is done."""
        self._wait(lambda: self.steps_done >= step, timeout_s, f"step {step}")

    def kill_learner_in_warm_start(self) -> None:
        """Kill a rank before the first step, which ends the driver; another takes its place."""

        def has_begun() -> bool:
            return re.search(r"warm start \d+/", self.output.read_text()) is not None

        self._wait(has_begun, 600, "the warm start")
        self._kill_one("learner")

    def kill(self, kind: str) -> Kill:
        """Kill one process, or node, of a kind and wait until the run has it as recovered."""
        step, before = self.steps_done, len(self._recoveries(kind))
        killed_at = time.time()
        pid = self._kill_one(kind)
        print(f"step {step}: killed {kind} (process {pid})", flush=True)
        if kind == "node":
            time.sleep(3)  # a new machine is never there at once
            assert self.machines is not None
            self.machines.add(4)
        self._wait(
            lambda: len(self._recoveries(kind)) > before, RECOVERY_TIMEOUT_S, f"{kind} is back"
        )
        back_at = datetime.fromisoformat(self._recoveries(kind)[before].utc).timestamp()
        done = Kill(kind=kind, pid=pid, step=step, seconds=back_at - killed_at)
        print(f"step {self.steps_done}: {kind} is back after {done.seconds:.1f} s", flush=True)
        self.kills.append(done)
        return done

    def finish(self, *, timeout_s: float) -> int:
        """Return the exit code of the run once it has ended by itself."""
        return self._supervisor.wait(timeout=timeout_s)

    def stop(self) -> None:
        """End what is left of the run."""
        if self.is_running:
            _kill(self._supervisor)
            for child in self._descendants():
                _kill(child)

    def left_over(self) -> list[str]:
        """Return the run's processes that are still there after its end."""
        wanted = ("SERVE_REPLICA", "ServeReplica", "VLLM::", "EnvRunner", "LearnerActor")
        return [
            f"{process.pid} {_title(process)}"
            for process in self._descendants()
            if any(name in _title(process) for name in wanted)
        ]

    def _kill_one(self, kind: str) -> int:
        if kind == "node":
            assert self.machines is not None
            # One that holds something of the run.
            busiest = max(
                range(len(self.machines.workers)),
                key=lambda i: len(self.machines.raylet(i).children(recursive=True)),  # type: ignore[union-attr]
            )
            return self.machines.lose(busiest)
        victims: list[psutil.Process] = []

        def found() -> bool:
            victims[:] = [p for p in self._descendants() if _is_victim(p, kind)]
            return bool(victims)

        self._wait(found, 120, f"a {kind} process")
        victim = victims[np.random.default_rng().integers(len(victims))]
        _kill(victim)
        return victim.pid

    def _recoveries(self, kind: str) -> list[Any]:
        wanted = RECOVERED_AS.get(kind, kind)
        found = read_recoveries(self.run_dir / "recoveries.jsonl")
        return [recovery for recovery in found if recovery.kind == wanted]

    def _descendants(self) -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    def _wait(self, holds: Callable[[], bool], timeout_s: float, what: str) -> None:
        def holds_in_a_run() -> bool:
            if holds():
                return True
            if not self.is_running:
                raise AssertionError(f"the run ended before {what}:\n{self.output.read_text()}")
            return False

        try:
            wait_until(holds_in_a_run, timeout_s=timeout_s, what=what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.output.read_text()}") from None


def _is_victim(process: psutil.Process, kind: str) -> bool:
    title = _title(process)
    if kind == "driver":
        return "--no-restart" in title
    wanted = {
        "environment": "ray::EnvRunner",
        "oracle": "ray::OracleActor",
        "learner": "ray::LearnerActor",
        "core": "VLLM::EngineCor",
    }
    if kind == "replica":
        return "-policy-" in title and "PolicyDeployment" in title
    return title.startswith(wanted[kind])


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return ""


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


SMALL_RUN = [
    "puzzles.num_train=400",
    "puzzles.num_validation=8",
    "puzzles.num_held_out=16",
    "warm_start.steps=60",
    "warm_start.careless_steps=10",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=8",
    "rollout.group_size=4",
    "resources.env_runners=2",
    "resources.oracle_actors=2",
    "evaluation.every=5",
    "evaluation.held_out_attempts=2",
    "checkpoint_every=4",
]


def table_of(kills: list[Kill]) -> str:
    """Return seconds to recover by kind, as Markdown."""
    lines = ["| killed | times | median s | longest s |", "| --- | --- | --- | --- |"]
    for kind in KINDS:
        seconds = [kill.seconds for kill in kills if kill.kind == kind]
        if seconds:
            lines.append(
                f"| {kind} | {len(seconds)} | {np.median(seconds):.1f} | {max(seconds):.1f} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Run the whole thing and return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--times", type=int, default=2, help="kills of every kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of order and moments of the kills")
    parser.add_argument("--run-dir", type=Path, default=None)
    parser.add_argument("overrides", nargs="*", help="configuration values as key=value")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    run_dir = options.run_dir or Path(tempfile.mkdtemp(prefix="cast-ray-chaos-")) / "run"
    victims = [kind for kind in options.kinds.split(",") for _ in range(options.times)]
    rng.shuffle(victims)
    machines = Machines.start(num_workers=2, num_cpus=4)
    overrides = [*SMALL_RUN, f"steps={options.steps}", "seed=0", *options.overrides]
    chaos = Chaos(run_dir, overrides, machines=machines)
    print(f"run directory {run_dir}, victims {', '.join(victims)}", flush=True)
    try:
        chaos.wait_for_step(1, timeout_s=900)
        for number, kind in enumerate(victims):
            # Spread over the run.
            chaos.wait_for_step(
                1 + number * (options.steps - 3) // len(victims), timeout_s=RECOVERY_TIMEOUT_S
            )
            time.sleep(rng.uniform(0, 5))  # at any moment of a step
            chaos.kill(kind)
        code = chaos.finish(timeout_s=1800)
        left = chaos.left_over()
    finally:
        chaos.stop()
        machines.cluster.shutdown()
    print(table_of(chaos.kills))
    audit = audit_of(run_dir)
    result = {
        "exit_code": code,
        "steps": len(read_metrics(run_dir / "metrics.parquet")),
        "kills": len(chaos.kills),
        "left_over": left,
        "audit_exit_code": audit,
    }
    print(json.dumps(result))
    return 0 if code == 0 and audit == 0 and not left else 1


def audit_of(run_dir: Path) -> int:
    """Replay games, credit, issue and updates from the log alone; return the exit code."""
    command = [str(Path(sys.executable).parent / "cast-ray"), "replay", str(run_dir), "--updates"]
    environment = {name: v for name, v in os.environ.items() if name != "RAY_ADDRESS"}
    return subprocess.run(command, env=environment, timeout=1800, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
