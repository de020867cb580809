"""A run as a Slurm job from its start to its end, as the launcher sees it; ``make slurm-test``.

examples/slurm/train.sbatch is submitted as it is, but for options and values that a user gives as
well. The node with head and driver loses power, then the other one, then the time limit comes near:
Slurm queues the job again each time, and the run must resume and end as if nothing had been. Every
phase says how long it took.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import psutil

from cast_ray.runs.metrics import read_metrics
from tests.cluster.cluster import run
from tests.cluster.launcher import PLACEMENT, TRAINING, check_is_idle, phase
from tests.cluster.machines import FOLDER, SHARED, Machine, set_up_launcher
from tests.slurm.slurm import GPUS, HOME, Slurm, since
from tests.support.waiting import wait_until

_RUN = SHARED / "runs" / "slurm"
_LOG = SHARED / "train.log"
_SCRIPT = "examples/slurm/train.sbatch"
_STEPS = 8
_OPTIONS = [f"--gpus-per-node={GPUS}", "--nodes=2", f"--output={_LOG}"]
_VALUES = [word for word in TRAINING if not word.startswith(("run_dir=", "steps="))]
_JOB = [
    *_OPTIONS,
    _SCRIPT,
    f"run_dir={_RUN}",
    f"steps={_STEPS}",
    *_VALUES,
    *PLACEMENT,
    "warm_start.steps=20",
]


def main() -> int:
    """Do it all and return an exit code."""
    began = time.monotonic()
    set_up_launcher()
    # Plasma's share of /dev/shm is the smallest that the mini task does with.
    os.environ["RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"] = "268435456"
    machines = [Machine(1), Machine(2)]
    try:
        _from_start_to_end(machines)
    except (AssertionError, TimeoutError) as error:
        print(f"slurm-test: {error}\n{_tail()}", file=sys.stderr)
        print(f"slurm-test: all files lie in {FOLDER} until the next one", file=sys.stderr)
        return 1
    print(f"slurm-test: all is well, {since(began)} min")
    return 0


def _from_start_to_end(machines: Sequence[Machine]) -> None:
    slurm = Slurm(machines)
    with phase("two machines are switched on, Slurm is started"):
        for machine in machines:
            machine.start()
        slurm.start()
    said = _end_early(slurm, machines, ["scancel"], "CANCELLED")
    assert said["Restarts"] == "0", f"the cancelled job queued itself again: {said}"
    said = _end_early(slurm, machines, ["scancel", "--batch", "--signal=INT"], "FAILED")
    assert said["ExitCode"] == "130:0", said
    job = slurm.submit(*_JOB)
    _wait_for_step(slurm, job, 1, "sbatch, the same once more: a step is played and learned")
    _check_token(machines)
    head = next(machine for machine in machines if machine.name == slurm.job(job)["BatchHost"])
    [worker] = [machine for machine in machines if machine is not head]
    _lose(slurm, job, head, "head and driver", restarts=1)
    _wait_for_step(slurm, job, 3, "the run is back, with two more steps")
    _lose(slurm, job, worker, "what the run has there", restarts=2)
    _wait_for_step(slurm, job, 4, "the run is back, with one more step")
    _reach_time_limit(slurm, job)
    with phase("the job is started again; the run ends"):
        states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        state = slurm.wait_for_state(job, *states, timeout_s=900)
    assert state == "COMPLETED", f"the job is {state}"
    with phase("the run is audited, as another job"):
        _audit(slurm)
    with phase("nothing is left"):
        _check_nothing_is_left(machines)


def _end_early(
    slurm: Slurm, machines: Sequence[Machine], command: Sequence[str], state: str
) -> dict[str, str]:
    """Submit the job, end it as soon as its driver has begun, and return what Slurm says of it."""

    def has_driver() -> bool:
        return any("cast_ray.cli train" in line for one in machines for line in one.processes())

    with phase(f"sbatch, and {' '.join(command)} when the run begins: the job is {state}"):
        job = slurm.submit(*_JOB)
        wait_until(has_driver, timeout_s=300, what="a driver")
        wait_until((_RUN / "config.yaml").is_file, timeout_s=120, what="a run directory")
        run(*command, job, timeout_s=30)
        slurm.wait_for_state(job, state, timeout_s=180)
    return slurm.job(job)


def _wait_for_step(slurm: Slurm, job: str, step: int, what: str) -> None:
    def is_learned() -> bool:
        state = slurm.job(job)["JobState"]
        assert state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), f"the job is {state}"
        return _steps_learned() >= step

    with phase(what):
        wait_until(is_learned, timeout_s=900, what=f"step {step}")


def _steps_learned() -> int:
    rows = read_metrics(_RUN / "metrics.parquet")
    return rows[-1].step if rows else 0


def _stored() -> dict[str, str]:
    """Return the digests of the steps that the run has played."""
    files = sorted((_RUN / "trajectories").glob("step-*.parquet"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _check_stored(before: dict[str, str]) -> None:
    """Raise unless all steps that were there are there as they were."""
    after = _stored()
    assert before.items() <= after.items(), f"steps were lost or played again: {before}, {after}"


def _check_token(machines: Sequence[Machine]) -> None:
    [token] = (HOME / ".ray").iterdir()
    assert token.stat().st_mode & 0o777 == 0o600, f"others may read {token}"
    for machine in machines:
        assert token.read_text() not in " ".join(machine.processes()), "a command line has it"


def _lose(slurm: Slurm, job: str, machine: Machine, what: str, *, restarts: int) -> None:
    before = _stored()
    with phase(f"{machine.name}, with {what}, loses power after step {_steps_learned()}"):
        machine.cut_power()
        _wait_for_restart(slurm, job, restarts)
    machine.start()
    machine.run("slurmd")
    _check_stored(before)


def _wait_for_restart(slurm: Slurm, job: str, restarts: int) -> None:
    def is_queued() -> bool:
        found = slurm.job(job)
        assert found["JobState"] not in ("FAILED", "CANCELLED", "TIMEOUT"), found
        return int(found["Restarts"]) >= restarts

    wait_until(is_queued, timeout_s=300, what=f"restart {restarts} of the job")


def _reach_time_limit(slurm: Slurm, job: str) -> None:
    """Let Slurm warn the script: the step must be finished and stored, and the job queued again."""
    before, learned = _stored(), _steps_learned()
    with phase(f"the time limit comes near after step {learned}: the job is queued again"):
        with _frozen("EnvRunner"):  # so that the warning comes within a step
            slurm.set_time_limit(job, minutes=8)
            wait_until(_is_warned, timeout_s=120, what="a warning of the time limit")
        _wait_for_restart(slurm, job, 3)
    slurm.set_time_limit(job, minutes=60)  # or the next start is warned, too
    _check_stored(before)
    stopped = _steps_learned()
    assert learned <= stopped < _STEPS, f"the run went on to step {stopped}"
    assert set(_stored()) == {f"step-{n:05d}.parquet" for n in range(1, stopped + 1)}, _stored()
    assert list((_RUN / "checkpoints").glob(f"*{stopped}")), f"no checkpoint of step {stopped}"
    assert "cast-ray: stopped; resume with" in _since_restart(), "the run did not stop by itself"


def _is_warned() -> bool:
    return "stopping after this step" in _since_restart()


def _since_restart() -> str:
    """Return what the log says since the last time that the run began or was resumed."""
    return _LOG.read_text().rpartition("looking at the cluster's nodes")[2]


@contextmanager
def _frozen(name: str) -> Iterator[None]:
    """Stop the actors of a class on all machines while the block runs."""
    titles = [(one, " ".join(one.cmdline())) for one in psutil.process_iter()]
    actors = [one for one, title in titles if title.startswith("ray::") and name in title]
    assert actors, f"no actor is a {name}"
    for actor in actors:
        actor.suspend()
    try:
        yield
    finally:
        for actor in actors:
            actor.resume()


def _audit(slurm: Slurm) -> None:
    steps = [row.step for row in read_metrics(_RUN / "metrics.parquet")]
    assert steps == list(range(1, _STEPS + 1)), f"the run has the steps {steps}"
    assert (_RUN / "model" / "model.safetensors").is_file(), "the run left no model"
    said = SHARED / "audit.log"
    words = [
        "--wait",
        "--nodes=1",
        f"--output={said}",
        "--wrap",
        f"cast-ray replay {_RUN} --updates",
    ]
    try:
        run("sbatch", *words, timeout_s=900, HOME=str(HOME))
    finally:
        print(said.read_text() if said.is_file() else "  the audit said nothing", flush=True)


def _check_nothing_is_left(machines: Sequence[Machine]) -> None:
    for machine in machines:
        check_is_idle(machine.name, partial(_running, machine), timeout_s=60)
        # 32 bytes each: semaphores of Python's, of processes that Slurm killed in the end.
        found = machine.run("find /dev/shm -mindepth 1 -not -name 'sem.mp-*'").split()
        assert not found, f"{machine.name} still has {found}"
    tokens = list((HOME / ".ray").glob("slurm-*"))
    assert not tokens, f"a token is left: {tokens}"


def _running(machine: Machine) -> list[str]:
    """Return what runs in a machine but Slurm's own daemon."""
    return [line for line in machine.processes() if line != "slurmd"]


def _tail() -> str:
    return _LOG.read_text()[-4000:] if _LOG.is_file() else "the job wrote no log"


if __name__ == "__main__":
    sys.exit(main())
