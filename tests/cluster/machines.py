"""Machines that are namespaces of this one: a network, processes and a disk of their own, and sshd.

A machine has its own address, host name, processes, home folder, /tmp and /dev/shm, so that a ``ray
stop`` in one leaves the others alone, and its power can be cut. What it shares with all others is
what machines of a cluster share by NFS or by having been set up alike: ``/mnt/shared``, the virtual
environment with its interpreter, and the kernels in ~/.cache that ``setup.sh`` compiles.

Everything hangs on the process that calls ``enter_launcher``: when it ends, by whatever signal, the
kernel ends all machines, and their networks and mounts are gone with them. What may be left is a
folder of files, which the next ``enter_launcher`` deletes.

The launcher, where ``ray up`` is called, has a home folder and a /tmp of its own too, so that a
test sees what is left there and this user's keys and tokens have no part in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

HOME = Path("/mnt/home")
SHARED = Path("/mnt/shared")
"""Seen by all machines, as a folder on NFS is."""
ROOT = Path(__file__).parents[2]
FOLDER = Path("/tmp/cast-ray-cluster-test")
_SEEN_BY_ALL = [str(path) for path in {Path(sys.prefix), Path(sys.base_prefix), ROOT, FOLDER}]
_CACHE = "CAST_RAY_TEST_CACHE"
"""Environment variable: where this user's compiled kernels are."""
_NETWORK = "10.77.0"
_LAUNCHER_ADDRESS = f"{_NETWORK}.254"
_PACKAGES = {
    "ip": "iproute2",
    "rsync": "rsync",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}


def missing(**more: str) -> list[str]:
    """Return what this computer lacks to hold such machines, one sentence each.

    Args:
        more: Debian's package by the program that is needed, too.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = [] if os.geteuid() == 0 else ["namespaces, mounts and addresses need root: use sudo"]
    wanted = {**_PACKAGES, **more}
    packages = {deb for name, deb in wanted.items() if shutil.which(name, path=path) is None}
    if packages:
        names = " ".join(sorted(packages))
        found.append(f"{names} missing: on Debian, apt-get install {names}")
    if found:
        return found
    tried = subprocess.run(
        [*_NAMESPACES, "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        found.append(f"no namespaces here ({tried.stderr.strip()}): a container needs --privileged")
    return found


_NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--mount"]


def enter_launcher(command: Sequence[str]) -> int:
    """Run a command as the launcher, wait for its end and return its exit code.

    All machines that it starts end with it. Whatever an aborted call left is deleted first.

    Args:
        command: in the checkout's folder.

    Raises:
        BlockingIOError: another process is at it.
    """
    with open(f"{FOLDER}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(mode=0o755)
        (Path.home() / ".cache").mkdir(exist_ok=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            # What is this user's own, or is asked of the machines' own files.
            if not name.startswith(("RAY_", "XDG_", "SSH_")) and name != "NUMBA_CACHE_DIR"
        }
        environment[_CACHE] = str(Path.home() / ".cache")
        environment["HOME"] = str(HOME)
        environment["PATH"] = f"{sys.prefix}/bin:{environment['PATH']}:/usr/sbin:/sbin"
        environment["RAY_AUTH_MODE"] = "token"  # Ray reads it when it is imported
        # bash as first process: it buries what ssh and Ray leave to it.
        inside = ["bash", "-c", '"$@"; exit $?', "launcher", *command]
        launcher = ["setpriv", "--pdeathsig", "KILL", *_NAMESPACES, "--mount-proc", *inside]
        process = subprocess.Popen(launcher, cwd=ROOT, env=environment)
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the command has had it too
            code = process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
        if code == 0:
            shutil.rmtree(FOLDER)
        return code


def set_up_launcher() -> None:
    """Give this process, alone in its namespaces, its folders, its names and its network."""
    cache = os.environ.pop(_CACHE)
    home, tmp = FOLDER / "launcher" / "home", FOLDER / "launcher" / "tmp"
    for folder in (home / ".ssh", tmp, FOLDER / "shared"):
        folder.mkdir(parents=True)
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "mnt", "/mnt")
    for name, target in {"home": home, "shared": FOLDER / "shared", "cache": cache}.items():
        (Path("/mnt") / name).mkdir()
        _run("mount", "--bind", str(target), f"/mnt/{name}")
    _run("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "run", "/run")
    Path("/run/sshd").mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=256m,mode=1777", "shm", "/dev/shm")
    _write_names()
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/mnt/hostkey")
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(HOME / ".ssh/id_ed25519"))
    _hide_tmp(tmp)
    for words in (
        "link set lo up",
        "link add machines type bridge",
        f"addr add {_LAUNCHER_ADDRESS}/24 dev machines",
        "link set machines up",
    ):
        _run("ip", *words.split())


def _write_names() -> None:
    """Make names answer at once: looked up elsewhere, each takes seconds where nobody answers."""
    accounts = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in accounts if not line.startswith("root:")]
    hosts = [f"{_NETWORK}.{number} cast{number}" for number in range(1, 10)]
    files = {
        "passwd": [f"root:x:0:0:root:{HOME}:/bin/bash", *others],
        "shadow": ["root:*:20000:0:99999:7:::"],
        "hosts": ["127.0.0.1 localhost", f"{_LAUNCHER_ADDRESS} launcher", *hosts],
        "nsswitch.conf": ["passwd: files", "group: files", "shadow: files", "hosts: files"],
    }
    _run("hostname", "launcher")
    for name, lines in files.items():
        path = Path("/mnt") / name
        path.write_text("\n".join(lines) + "\n")
        _run("mount", "--bind", str(path), f"/etc/{name}")


def _hide_tmp(tmp: Path) -> None:
    """Put a folder in the place of /tmp, with what all machines see still in it."""
    for path in _SEEN_BY_ALL:
        if path.startswith("/tmp/"):
            (tmp.parent / path[1:]).mkdir(parents=True, exist_ok=True)
            _run("mount", "--bind", path, str(tmp.parent / path[1:]))
    _run("mount", "--rbind", str(tmp), "/tmp")


class Machine:
    """One machine; what it has on its disk outlives a power cut."""

    def __init__(self, number: int) -> None:
        """Describe the machine with a number from 1 on; ``start`` switches it on."""
        self.name, self.address = f"cast{number}", f"{_NETWORK}.{number}"
        self._folder = FOLDER / self.name
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Switch the machine on and return when its sshd can be reached.

        Raises:
            RuntimeError: it did not come up; its log says why.
        """
        keys = self._folder / "home" / ".ssh"
        keys.mkdir(parents=True, exist_ok=True)
        (self._folder / "home" / ".cache").mkdir(exist_ok=True)
        (self._folder / "tmp").mkdir(exist_ok=True)
        (keys / "authorized_keys").write_text((HOME / ".ssh/id_ed25519.pub").read_text())
        script = str(Path(__file__).with_name("machine.sh"))
        with open(self._folder / "log", "a") as log:
            self._process = subprocess.Popen(
                [*_NAMESPACES, "bash", script, self.name, str(self._folder), *_SEEN_BY_ALL],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "up\n":
            raise RuntimeError(f"{self.name}: {(self._folder / 'log').read_text()}")
        peer = f"type veth peer name eth0 netns {self._process.pid}"
        _run("ip", *f"link add {self.name} {peer}".split())
        _run("ip", *f"link set {self.name} master machines up".split())
        for words in (
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {_LAUNCHER_ADDRESS}",
        ):
            _run("nsenter", f"--net=/proc/{self._process.pid}/ns/net", "ip", *words.split())

    def cut_power(self) -> None:
        """End the machine as a power cut does: its cable is silent before its processes end."""
        assert self._process is not None
        _run("ip", "link", "del", self.name)
        self._process.kill()
        self._process.wait()

    def run(self, command: str) -> str:
        """Return what a command of bash prints in the machine, past its sshd."""
        first = self._first_process()
        return _run("nsenter", "--target", str(first), "--all", "bash", "-c", command)

    def processes(self) -> list[str]:
        """Return the command lines of all that runs in the machine but its sshd."""
        assert self._process is not None
        first = self._first_process()
        children = psutil.Process(first).children(recursive=True)
        return [line for line in map(_command_line, children) if line]

    def _first_process(self) -> int:
        assert self._process is not None
        [first] = psutil.Process(self._process.pid).children()
        return first.pid


def holders(text: str) -> list[Path]:
    """Return all files of machines and launcher, in homes and /tmp, that hold a text."""
    wanted = text.encode()
    files = [path for path in FOLDER.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(path for path in files if wanted in path.read_bytes())


def launcher_processes(machines: Sequence[Machine]) -> list[str]:
    """Return the command lines of all that runs in the launcher but this process and machines."""
    held = {machine._process.pid for machine in machines if machine._process is not None}
    mine = {os.getpid(), 1}
    here = os.readlink("/proc/self/ns/pid")
    return [
        line
        for process in psutil.process_iter()
        if process.pid not in held | mine
        and _namespace(process.pid) == here
        and (line := _command_line(process))
    ]


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except FileNotFoundError:
        return ""


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
