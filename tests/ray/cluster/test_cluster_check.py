"""`cast-ray doctor --cluster`, and a run that is refused, on a cluster of several nodes.

The nodes are real raylets on this machine. One that lacks files has a mount namespace of its own,
with nothing in the folders that it is not to see.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cast_ray.cluster.session import ray_session
from tests.support.ports import free_port

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[3]
_RAY = Path(sys.executable).with_name("ray")
_STORE_BYTES = 80 * 2**20
_STARTED = "Ray runtime started"

# What a driver would find of a run that was started in the cluster.
ACTORS = """
import ray
ray.init(logging_level="ERROR", log_to_driver=False)
print(ray.util.list_named_actors(all_namespaces=True))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A head, the environment of its drivers, and a folder that all nodes see."""

    address: str
    env: dict[str, str]
    shared: Path

    def run(self, arguments: Sequence[str], **env: str) -> tuple[int, str]:
        """Return exit code and output of a command of Python's."""
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            env={**self.env, **env},
            cwd=self.shared,  # Ray makes it importable on the nodes
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    def doctor(self, *words: str, **env: str) -> tuple[int, str]:
        return self.run(["-m", "cast_ray.cli", "doctor", "--cluster", *words], **env)

    @contextmanager
    def worker(
        self, *, path: Path = ROOT, hidden: Sequence[Path] = (), **env: str
    ) -> Iterator[int]:
        """Have one more node, with cast_ray from a path; yield the process id of its raylet.

        Args:
            path: of the node's cast_ray.
            hidden: folders that are empty there.
            env: more of its environment.
        """
        command = [str(_RAY), "start", "--block", "--disable-usage-stats"]
        command += ["--address", self.address, "--num-cpus", "1"]
        command += ["--object-store-memory", str(_STORE_BYTES)]
        command += ["--dashboard-agent-listen-port", str(free_port())]
        if hidden:
            mounts = " && ".join(f"mount -t tmpfs none {folder}" for folder in hidden)
            command = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]
        with _node(command, {**self.env, "PYTHONPATH": str(path), **env}) as process:
            yield _raylet_of(process.pid)


@contextmanager
def _node(command: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = ""
    try:
        while _STARTED not in said:
            line = process.stdout.readline()
            said += line
            assert line, said
        yield process
    finally:
        # --block: all processes of the node end with this one.
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _raylet_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    [raylet] = [c for c in children if "raylet" in Path(f"/proc/{c}/comm").read_text()]
    return int(raylet)


def _can_hide() -> bool:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mount, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Ray's sockets have names of 107 characters at most: pytest's own folders are too deep.
    place = Path(tempfile.mkdtemp(prefix="cr-", dir="/tmp"))
    port = free_port()
    env = {
        **os.environ,
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
    }
    # A refused driver asks for as long as this; as a user's has it, not tests/conftest.py.
    env.pop("RAY_gcs_server_port_wait_time_s", None)
    options = {
        "--port": port,
        "--include-dashboard": "false",
        "--dashboard-agent-listen-port": free_port(),
        "--temp-dir": place,
        "--num-cpus": 4,  # what a run of the default configuration begins with
        "--object-store-memory": _STORE_BYTES,
        "--ray-client-server-port": free_port(),
    }
    words = [str(word) for option in options.items() for word in option]
    command = [str(_RAY), "start", "--head", "--block", "--disable-usage-stats", *words]
    shared = tmp_path_factory.mktemp("shared")
    with _node(command, env):
        yield Cluster(address=env["RAY_ADDRESS"], env=env, shared=shared)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what looks like a model of two hundred numbers."""
    folder = tmp_path_factory.mktemp("models") / "one"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"a": np.zeros((10, 20), dtype=np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def changed_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with this checkout's packages, one line of them another."""
    place = tmp_path_factory.mktemp("other")
    for package in ("cast_ray", "serve", "solver_actors"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, place / package, ignore=ignored)
    with open(place / "cast_ray" / "seeds.py", "a") as module:
        module.write("# another version\n")
    return place


def test_nodes_that_are_alike_are_ready(cluster: Cluster, model: Path) -> None:
    with cluster.worker():
        run_dir = cluster.shared / "runs" / "one"
        code, output = cluster.doctor(f"policy.path={model}", f"run_dir={run_dir}")
    assert code == 0, output
    assert "the run fits" in output
    rows = [line.split() for line in output.splitlines() if " (node " in line]
    assert [row[3] for row in rows] == ["head", "worker"]
    assert output.count("as the driver's") == 2
    assert output.splitlines()[-1] == "Ready."
    assert list(cluster.shared.iterdir()) == []  # what was written to be seen is gone


@pytest.mark.skipif(not _can_hide(), reason="needs the right to mount")
def test_run_is_refused_with_all_that_a_node_lacks(
    cluster: Cluster, model: Path, changed_code: Path
) -> None:
    runs = cluster.shared / "runs"
    runs.mkdir()
    words = [f"policy.path={model}", f"run_dir={runs / 'mine'}"]
    with cluster.worker(path=changed_code, hidden=[model, runs]):
        code, output = cluster.doctor(*words)
        assert code == 1, output
        problems = [line for line in output.splitlines() if line.startswith("problem")]
        assert len(problems) == 3, output
        assert all(problem.count("(node ") == 1 for problem in problems)
        assert " cast_ray is 0." in problems[0] and "--with-code" in problems[0]
        assert f"policy.path={model} " in problems[1] and "config.json" in problems[1]
        assert f"run_dir={runs / 'mine'} " in problems[2]
        assert "differ: cast_ray\n" in output and output.endswith("3 to fix.\n")

        few = [f"puzzles.num_{which}=4" for which in ("train", "validation", "held_out")]
        code, output = cluster.run(["-m", "cast_ray.cli", "train", words[1], *few])
        last = output.splitlines()[-1]
        assert code == 2, output
        assert "nothing was started" in last
        assert " cast_ray is 0." in last and f"run_dir={runs / 'mine'} " in last
        assert f"--resume run_dir={runs / 'mine'}" in last
        assert "Traceback" not in output
        # No engine, no learner, no policy; the run's own directory alone.
        assert cluster.run(["-c", ACTORS])[1].splitlines()[-1] == "[]"
        assert not list((runs / "mine").rglob("*model*"))
        assert not list((runs / "mine").glob(".cast-ray-*"))


def test_store_that_cannot_be_reached_is_said_once_for_all_nodes(cluster: Cluster) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    uri = f"s3://bucket/run?endpoint_override={nobody}&scheme=http"
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with cluster.worker(**keys):
        code, output = cluster.doctor(f"run_dir={uri}")
    assert code == 1, output
    [problem] = [line for line in output.splitlines() if line.startswith("problem")]
    assert problem.count("(node ") == 2
    assert nobody in problem


def test_node_where_cast_ray_cannot_be_imported_is_told_from_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    # Found before the installed packages: whatever imports one of them on the node fails.
    for name in ("cast_ray", "serve", "solver_actors"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('this node has no cast_ray')\n")
    with cluster.worker(path=tmp_path):
        code, output = cluster.doctor()
    assert code == 1, output
    [problem] = [line for line in output.splitlines() if line.startswith("problem")]
    assert " cast_ray is " in problem and "the driver's" in problem


def test_node_that_does_not_answer_is_named(cluster: Cluster) -> None:
    with cluster.worker() as raylet:
        os.kill(raylet, signal.SIGSTOP)
        try:
            code, output = cluster.doctor()  # ends: it is not waited for longer than `run` waits
        finally:
            os.kill(raylet, signal.SIGCONT)
    assert code == 1, output
    [problem] = [line for line in output.splitlines() if line.startswith("problem")]
    assert "ray status" in problem


def test_whoever_is_not_let_in_is_told_in_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    code, output = cluster.doctor(RAY_AUTH_TOKEN="0" * 32)
    assert code == 2
    last = output.splitlines()[-1]
    assert cluster.address in last and "token" in last and "RAY_AUTH_TOKEN_PATH" in last
    code, output = cluster.doctor(RAY_AUTH_TOKEN="", HOME=str(tmp_path))
    assert (code, output.count("\n")) == (2, 1)
    assert f"{tmp_path}/.ray/auth_token" in output
    code, output = cluster.doctor(RAY_AUTH_MODE="disabled")
    assert code == 2
    assert "RAY_AUTH_MODE=token" in output.splitlines()[-1]
    assert "Traceback" not in output


def test_address_of_nobody_is_told_at_once(cluster: Cluster) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for words, env in [(["--address", nobody], {}), ([], {"RAY_ADDRESS": nobody})]:
        started = time.monotonic()
        code, output = cluster.doctor(*words, **env)
        assert (code, output.count("\n")) == (2, 1)
        assert nobody in output and "Connection refused" in output
        assert time.monotonic() - started < 45  # the join's own limit is 60 s


def test_run_with_the_wrong_token_is_refused_in_one_sentence(cluster: Cluster) -> None:
    few = [f"puzzles.num_{which}=4" for which in ("train", "validation", "held_out")]
    run_dir = f"run_dir={cluster.shared / 'wrong'}"
    words = ["-m", "cast_ray.cli", "train", run_dir, *few]
    code, output = cluster.run(words, RAY_AUTH_TOKEN="0" * 32)
    assert code == 2, output
    assert "RAY_AUTH_TOKEN_PATH" in output.splitlines()[-1]
    assert "Traceback" not in output


def test_ray_of_the_run_alone_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_session(num_cpus=1) as is_joined:
        assert not is_joined
