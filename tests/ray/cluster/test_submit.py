"""`cast-ray submit` against a head of Ray with token authentication and a dashboard of its own."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cast_ray.cluster.code_version import code_version
from cast_ray.cluster.inside_job import SUBMITTED_BY
from tests.support.ports import free_port

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[3]
_RAY = Path(sys.executable).with_name("ray")

# Sends a command of the test's own the way `cast-ray submit` sends its.
SEND = """
import os, sys
from cast_ray.cli.submit import _follow, send_job
from cast_ray.errors import CastRayError
from cast_ray.cluster.jobs_api import JobServer
from cast_ray.cluster.submit import JobRequest

name, command, code, follow, *pairs = sys.argv[1:]
server = JobServer(None)
env_vars = dict(pair.split("=", 1) for pair in pairs)
request = JobRequest(name=name, command=command, env_vars=env_vars, metadata={"run_dir": "/one"})
try:
    send_job(server, request, config_file=None, with_code=code == "code")
    if follow == "follow":
        import typer
        try:
            _follow(server, name)
        except typer.Exit as end:
            sys.exit(end.exit_code)
except CastRayError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A running head, and the environment in which its jobs are sent."""

    url: str
    env: dict[str, str]

    def start(self, arguments: Sequence[str], **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", *arguments],
            env={**self.env, **env},
            cwd=ROOT / "tests",  # nothing of it is importable, or sent
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, arguments: Sequence[str], **env: str) -> tuple[int, str]:
        """Return exit code and output of a command of Python's."""
        process = self.start(arguments, **env)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def submit(self, *words: str, **env: str) -> tuple[int, str]:
        return self.run(["-m", "cast_ray.cli", "submit", *words], **env)

    def send(
        self, name: str, command: str, *pairs: str, code: bool = False, follow: bool = True
    ) -> tuple[int, str]:
        return self.run(_sending(name, command, *pairs, code=code, follow=follow))


def _sending(
    name: str, command: str, *pairs: str, code: bool = False, follow: bool = True
) -> list[str]:
    words = ["code" if code else "", "follow" if follow else ""]
    return ["-c", SEND, name, command, *words, *pairs]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    # Ray's sockets have names of 107 characters at most: pytest's own folders are too deep.
    place = Path(tempfile.mkdtemp(prefix="cr-", dir="/tmp"))
    port = free_port()
    env = {
        **os.environ,
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{port}",
        "NO_PROXY": "127.0.0.1",
    }
    env.pop("RAY_ADDRESS", None)
    options = {
        "--port": 0,
        "--dashboard-host": "127.0.0.1",
        "--dashboard-port": port,
        "--dashboard-agent-listen-port": free_port(),
        "--temp-dir": place,
        "--num-cpus": 2,
        "--object-store-memory": 100 * 2**20,
        "--ray-client-server-port": free_port(),
    }
    words = [str(word) for option in options.items() for word in option]
    log = (place / "head.log").open("w")
    # --block: all processes of this head end with this one.
    process = subprocess.Popen(
        [_RAY, "start", "--head", "--block", "--disable-usage-stats", *words],
        env=env,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    head = Head(url=env["RAY_API_SERVER_ADDRESS"], env=env)
    try:
        deadline = time.monotonic() + 60
        while head.submit("--list")[0] != 0:
            assert process.poll() is None, (place / "head.log").read_text()
            assert time.monotonic() < deadline, head.submit("--list")[1]
        yield head
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        log.close()
        shutil.rmtree(place, ignore_errors=True)


def test_job_runs_the_code_that_travels_and_is_followed_to_its_end(head: Head) -> None:
    say = "import cast_ray, serve; print(cast_ray.__file__, serve.__file__)"
    command = f'echo one && {sys.executable} -P -c "{say}" && sleep 1 && echo two'
    code, output = head.send("good", command, code=True)
    assert code == 0, output
    assert output.index("\none\n") < output.index("\ntwo\n")
    assert f"{head.url}/#/jobs/good" in output
    assert output.endswith("job good: SUCCEEDED\n")
    [line] = [line for line in output.splitlines() if line.endswith("/serve/__init__.py")]
    assert str(ROOT) not in line and line.count("/working_dir_files/") == 2
    code, output = head.send("good", "true")
    assert code == 2
    assert "good" in output and "--name" in output


@pytest.mark.parametrize("option", ["--stop", "--logs"])
def test_name_of_no_job_is_told_in_one_line(head: Head, option: str) -> None:
    code, output = head.submit(option, "nobody")
    assert (code, output.count("\n")) == (2, 1), output
    assert "nobody" in output and "--list" in output


def _read_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or word not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    return "".join(lines)


def test_ctrl_c_leaves_the_job_alone_and_stop_ends_it(head: Head) -> None:
    following = head.start(_sending("long", "echo it is up; exec sleep 600"))
    assert "sent: nothing" in _read_until(following, "it is up")
    following.send_signal(signal.SIGINT)
    output, _ = following.communicate(timeout=30)
    assert following.returncode == 130
    assert "--logs long" in output
    assert "Traceback" not in output
    code, output = head.submit("--status", "long")
    assert code == 0 and "RUNNING" in output and "/one" in output
    code, output = head.submit("--stop", "long")
    assert code == 0 and "--logs long" in output
    code, output = head.submit("--logs", "long")
    assert code == 3, output
    assert "it is up" in output and "job long: STOPPED" in output
    code, output = head.submit("--stop", "long")
    assert code == 0 and re.search(r"\blong\b.*STOPPED\n\Z", output)
    code, output = head.submit("--list")
    [line] = [line for line in output.splitlines() if line.startswith("long ")]
    assert code == 0 and "STOPPED" in line


DRIVER = """
import sys, time
from cast_ray.cluster.session import ray_session
from cast_ray.numba_cache import use_kernel_cache
use_kernel_cache()
with ray_session(num_cpus=0):
    try:
        print("the driver starts its parts", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        time.sleep(5)  # more than the 3 s that Ray gives a job, and a process that has a SIGTERM
        print("the driver has ended its parts", flush=True)
sys.exit(130)
"""


def test_stop_reaches_the_driver_once_and_waits_for_its_end(head: Head, tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    call = (
        "import pathlib, sys; from cast_ray.training.supervisor import supervise; "
        f"sys.exit(supervise(sys.argv[1:], run_dir=pathlib.Path({str(tmp_path)!r}), "
        "resume=False, max_restarts=3))"
    )
    # Not by exec: the shell between is one more process that Ray signals.
    command = f'{sys.executable} -c "{call}" {sys.executable} {driver}; exit $?'
    following = head.start(_sending("step", command, "RAY_JOB_STOP_WAIT_TIME_S=30"))
    _read_until(following, "the driver starts its parts")
    assert head.submit("--stop", "step")[0] == 0
    output, _ = following.communicate(timeout=60)
    assert "the driver has ended its parts\n" in output
    assert following.returncode == 3, output


def test_train_as_a_job_says_its_versions_first_and_fails_in_words(
    head: Head, tmp_path: Path
) -> None:
    settings = tmp_path / "my settings.yaml"
    settings.write_text("puzzles: {file: /nowhere/boards.parquet}\n")
    words = [f"run_dir={tmp_path / 'run'}", "--config", str(settings), "--name", "train"]
    code, output = head.submit(*words)
    assert code == 1, output
    assert "1 file, 1 KiB" in output
    assert f"cast-ray {code_version()}, Ray" in output
    assert "warning" not in output.lower()
    assert "/nowhere/boards.parquet" in output.partition("Python ")[2]


def test_whoever_is_not_let_in_is_told_in_one_line(head: Head, tmp_path: Path) -> None:
    code, output = head.submit("--list", RAY_AUTH_TOKEN="0" * 32)
    assert (code, output.count("\n")) == (2, 1)
    assert "token" in output and "RAY_AUTH_TOKEN_PATH" in output
    code, output = head.submit("--list", RAY_AUTH_TOKEN="", HOME=str(tmp_path))
    assert (code, output.count("\n")) == (2, 1)
    assert "token" in output and str(tmp_path) in output
    # --address wins over the environment, where Ray's own client does it the other way round.
    nobody = f"http://127.0.0.1:{free_port()}"
    code, output = head.submit("--list", "--address", nobody)
    assert (code, output.count("\n")) == (2, 1)
    assert nobody in output and "--address" in output


def test_plain_ray_job_submit_sends_no_junk_and_is_told_what_is_wrong(
    head: Head, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    sent = ["pyproject.toml", "cast_ray/cli/main.py", "configs/train/quickstart.yaml"]
    junk = [
        ".venv/lib/torch.so",
        "runs/mine/model/model.safetensors",
        "data/sokoban/id/train.parquet",
        ".git/objects/pack/one.pack",
        "cast_ray/__pycache__/cli.cpython-311.pyc",
        ".hypothesis/examples/1",
        ".numba_cache/kernel.nbc",
        "dist/cast_ray.whl",
    ]
    for name in [*sent, *junk]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("x")
    shutil.copy(ROOT / ".gitignore", checkout / ".gitignore")
    # What the job's working directory holds, then a run that Ray's clearing would delete.
    command = ["sh", "-c", "find . -type f; cast-ray train run_dir=runs/mine"]
    env_vars = {SUBMITTED_BY: "0.0.9 (code 12345678)"}
    settings = ["--runtime-env-json", json.dumps({"env_vars": env_vars})]
    done = subprocess.run(
        [_RAY, "job", "submit", "--working-dir", checkout, *settings, "--", *command],
        env=head.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = {line[2:] for line in done.stdout.splitlines() if line.startswith("./")}
    assert found == {*sent, ".gitignore"}
    here = code_version()
    assert f"\ncast-ray {here}, Ray" in done.stdout
    assert re.search(rf"0\.0\.9 \(code 12345678\).*{re.escape(here)}.*--with-code", done.stdout)
    assert re.search(r"run_dir.*absolute path", done.stdout)
    assert done.returncode == 1
