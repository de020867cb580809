"""A cluster over SSH from its start to its end, as the launcher sees it; ``make cluster-test``.

configs/cluster/ssh.yaml (but for ``rendering.CHANGED``) starts a head and two workers, a training
run is sent there as a job, the worker with its engine loses power and comes back, and
configs/cluster/down.sh ends it all: nothing may be left. Each phase says how long it took.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cast_ray.runs.recoveries import read_recoveries
from tests.cluster.cluster import Cluster, run
from tests.cluster.machines import (
    FOLDER,
    HOME,
    ROOT,
    SHARED,
    Machine,
    holders,
    launcher_processes,
    set_up_launcher,
)
from tests.cluster.rendering import rendered
from tests.support.waiting import wait_until

_RUN = SHARED / "runs" / "cluster"
_SAID = HOME / "train.log"
"""What ``cast-ray submit`` says."""
TRAINING = [
    f"run_dir={_RUN}",
    "steps=8",  # two before the power cut, and enough after it that it is not too late
    "puzzles.num_train=200",
    "puzzles.num_validation=4",
    "puzzles.num_held_out=8",
    "warm_start.steps=40",
    "warm_start.careless_steps=10",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=4",
    "rollout.group_size=4",
    "evaluation.every=0",
    "evaluation.held_out_attempts=2",
    "checkpoint_every=2",
]
PLACEMENT = [
    "resources.env_runners=2",
    "resources.cpus_per_env_runner=0.2",
    "resources.cpus_per_oracle_actor=0.1",
    "resources.cpus_per_learner_rank=0.5",
    # So much of a machine that no rank of the learner has room beside the engine.
    f"resources.cpus_per_engine={(os.cpu_count() or 1) - 0.5}",
]
"""What decides on which machine a part runs."""


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    print(f"{name} ...", flush=True)
    began = time.monotonic()
    yield
    print(f"  {time.monotonic() - began:.1f} s", flush=True)


def main() -> int:
    """Do it all and return an exit code."""
    set_up_launcher()
    file = HOME / "ssh.yaml"
    text = (ROOT / "configs" / "cluster" / "ssh.yaml").read_text()
    file.write_text(rendered(text, environment=Path(sys.prefix)))
    machines = [Machine(number) for number in (1, 2, 3)]
    try:
        _from_start_to_end(file, machines)
    except (AssertionError, TimeoutError) as error:
        print(f"cluster-test: {error}", file=sys.stderr)
        print(f"cluster-test: all files lie in {FOLDER} until the next one", file=sys.stderr)
        return 1
    print("cluster-test: all is well")
    return 0


def _from_start_to_end(file: Path, machines: Sequence[Machine]) -> None:
    cluster = Cluster(file)
    everybody = {machine.address for machine in machines}
    with phase("three machines are switched on"):
        for machine in machines:
            machine.start()
    with phase("ray up"):
        run("ray", "get-auth-token", "--generate", timeout_s=60)
        cluster.up()
    cluster.open_dashboard()
    with phase("both workers join by themselves"):
        wait_until(lambda: cluster.nodes_alive() == everybody, timeout_s=180, what="all nodes")
    with phase("ray job submit"):
        _check_plain_job(run("ray", "job", "submit", "--", "python", "-c", JOB, timeout_s=120))
    _train(cluster, machines)
    with phase("the lost worker is back"):
        wait_until(lambda: cluster.nodes_alive() == everybody, timeout_s=180, what="all nodes")
    with phase("configs/cluster/down.sh"):
        cluster.close_dashboard()
        cluster.down()
    with phase("nothing is left"):
        _check_nothing_is_left(machines)


# Each task lasts half a second, so that one worker does not get through all of them.
JOB = """
import ray, socket, time
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def name():
    time.sleep(0.5)
    return socket.gethostname()
print("driver", socket.gethostname())
print("tasks", *sorted(set(ray.get([name.remote() for _ in range(8)]))))
"""


def _check_plain_job(output: str) -> None:
    assert "\ndriver cast1\n" in output, f"the driver is not on the head:\n{output}"
    assert "\ntasks cast2 cast3\n" in output, f"tasks are not on both workers alone:\n{output}"


def _train(cluster: Cluster, machines: Sequence[Machine]) -> None:
    with open(_SAID, "w") as log:
        words = ["cast-ray", "submit", "--name", "train", *TRAINING, *PLACEMENT]
        submit = subprocess.Popen(words, cwd=HOME, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def step_is_played(step: int) -> bool:
        assert submit.poll() is None, f"the run ended early:\n{_SAID.read_text()[-5000:]}"
        return (_RUN / "trajectories" / f"step-{step:05d}.parquet").is_file()

    with phase("cast-ray submit: two steps are played"):
        wait_until(lambda: step_is_played(2), timeout_s=900, what=f"step 2, see {_SAID}")
    lost = _machine_of_the_engine(cluster, machines)
    with phase(f"{lost.name}, with the engine, loses power: Ray has noticed"):
        lost.cut_power()
        others = {machine.address for machine in machines} - {lost.address}
        wait_until(lambda: cluster.nodes_alive() == others, timeout_s=180, what="a lost node")
    lost.start()
    with phase("power is back; the run ends"):
        wait_until(lambda: submit.poll() is not None, timeout_s=1800, what=f"an end, see {_SAID}")
    _check_run(submit.returncode, machines)


def _machine_of_the_engine(cluster: Cluster, machines: Sequence[Machine]) -> Machine:
    """Return where the engine is, once it is sure that it and its weights are where they belong."""
    places = _places(cluster)
    print("  " + "; ".join(f"{part}: {', '.join(on)}" for part, on in places.items()))
    engine = _check_places(places)
    found = next(machine for machine in machines if machine.address == engine)
    weights = found.run("find /dev/shm -name 'weights-*.safetensors'").split()
    # Version 2 plays step 2, and a file in this machine's own /dev/shm came over the network.
    assert any("weights-2." in path for path in weights), f"{found.name} has only {weights}"
    return found


def _places(cluster: Cluster) -> dict[str, list[str]]:
    """Return the addresses where each part of the run is, by part."""
    words = {
        "driver": "_ray_internal_job_actor_train",
        "engine": "PolicyDeployment",
        "learner": "LearnerActor",
        "environments": "-environment-",
        "oracles": "-oracle-",
    }
    actors = cluster.actors()
    return {
        part: sorted({actor.address for actor in actors if word in actor.name})
        for part, word in words.items()
    }


def _check_places(places: dict[str, list[str]]) -> str:
    """Return the address of the engine."""
    engines, drivers = places["engine"], places["driver"]
    assert len(engines) == len(drivers) == 1, f"there is no one engine or driver: {places}"
    [engine], [driver] = engines, drivers
    assert engine != driver, f"the engine is on the driver's machine, {driver}"
    assert engine not in places["learner"], f"the engine is on the learner's machine, {engine}"
    found = places["environments"]
    assert len(found) >= 2, f"all env runners are on {found}"
    assert driver not in found, f"an env runner is on the driver's machine, {driver}"
    return engine


def _check_run(exit_code: int, machines: Sequence[Machine]) -> None:
    said = _SAID.read_text()
    assert exit_code == 0, f"cast-ray submit: {exit_code}\n{said[-5000:]}"
    assert "warning: submitted from" not in said, "the file mounts brought other code than this"
    recoveries = read_recoveries(_RUN / "recoveries.jsonl")
    for recovery in recoveries:
        print(f"  {recovery.kind}: {recovery.what}, {recovery.seconds:.0f} s")
    kinds = {recovery.kind for recovery in recoveries}
    assert {"node", "engine"} <= kinds, f"the run says nothing of its loss, only of {kinds}"
    assert (_RUN / "model" / "model.safetensors").is_file(), "the run left no model"
    for machine in machines:
        found = machine.run("find /dev/shm -name 'cast-ray-*'")
        assert not found, f"the run left in {machine.name}: {found}"


def _check_nothing_is_left(machines: Sequence[Machine]) -> None:
    # ssh keeps its connections open for ten seconds, as Ray asks it to. Raylets would end after a
    # minute by themselves: so long nobody waits for them here.
    check_is_idle("the launcher", lambda: launcher_processes(machines), timeout_s=30)
    for machine in machines:
        check_is_idle(machine.name, machine.processes, timeout_s=5)
        left = machine.run("find /dev/shm -mindepth 1").split()
        assert not left, f"{machine.name} still has {left}"
    key, token = HOME / ".ssh" / "id_ed25519", HOME / ".ray" / "auth_token"
    found = holders(key.read_text().splitlines()[1])
    assert len(found) == 1, f"the private key is in {found}"
    found = [path for path in holders(token.read_text().strip()) if path.name != token.name]
    assert not found, f"the token is in {found}"


def check_is_idle(name: str, processes: Callable[[], list[str]], *, timeout_s: float) -> None:
    """Raise if processes are still there after so long."""
    try:
        wait_until(lambda: not processes(), timeout_s=timeout_s, what=f"{name} runs nothing")
    except TimeoutError:
        raise AssertionError(f"{name} still runs {processes()}") from None


if __name__ == "__main__":
    sys.exit(main())
