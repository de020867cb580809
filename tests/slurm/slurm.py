"""A real Slurm whose nodes are ``tests.cluster.machines``, for its user and its administrator.

The controller is in the launcher. One munged serves all, through a socket that all machines see.
There is neither systemd nor a cgroup: Slurm finds a job's processes by their parents.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.cluster import run
from tests.cluster.machines import SHARED, Machine
from tests.support.waiting import wait_until

HOME = SHARED / "home"
"""Of the user whose jobs run: all nodes see it, as on most clusters."""
_FOLDER = SHARED / "slurm"
_CONF = """\
ClusterName=cast
SlurmctldHost=launcher
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
StateSaveLocation=/tmp/slurmctld
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MailProg=/bin/true
SelectType=select/cons_tres
GresTypes=gpu
# A node that is silent for so long is down, and its jobs are queued again. Else 300 s.
SlurmdTimeout=15
KillWait=30
ReturnToService=2
NodeName=cast[1-{nodes}] CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
GPUS = 2
"""Of each node: only counted, nothing is there."""


class Slurm:
    """A controller, and a daemon on every machine."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        """Take machines that are switched on, named as in the configuration."""
        self._machines = machines
        os.environ["SLURM_CONF"] = str(_FOLDER / "slurm.conf")

    def start(self) -> None:
        """Start everything and return when all nodes are idle."""
        _FOLDER.mkdir()
        HOME.mkdir()
        (HOME / ".cache").symlink_to("/mnt/cache")
        conf = _CONF.format(
            folder=_FOLDER, nodes=len(self._machines), cpus=os.cpu_count(), gpus=GPUS
        )
        (_FOLDER / "slurm.conf").write_text(conf)
        for number in range(GPUS):
            (_FOLDER / f"gpu{number}").touch()
        (_FOLDER / "gres.conf").write_text(f"Name=gpu File={_FOLDER}/gpu[0-{GPUS - 1}]\n")
        key = _FOLDER / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        places = [f"--{option}={_FOLDER}/munge.{end}" for option, end in files.items()]
        run("munged", f"--key-file={key}", *places, timeout_s=30)
        Path("/tmp/slurmctld").mkdir()
        run("slurmctld", timeout_s=30)
        for machine in self._machines:
            machine.run("slurmd")
        wait_until(lambda: self.idle() == len(self._machines), timeout_s=20, what="idle nodes")

    def idle(self) -> int:
        """Return how many nodes are idle."""
        found = run("sinfo", "--noheader", "--Node", "--format=%t", timeout_s=30)
        return found.split().count("idle")

    def submit(self, *words: str) -> str:
        """Submit a job as the user does, from the checkout, and return its id."""
        # A machine in trouble answers later: see tests/slurm/launcher.py for what is waited for.
        return run("sbatch", "--parsable", *words, timeout_s=30, HOME=str(HOME)).strip()

    def job(self, job_id: str) -> dict[str, str]:
        """Return what Slurm says of a job, by its own names: JobState, Restarts, BatchHost."""
        said = run("scontrol", "--oneliner", "show", "job", job_id, timeout_s=30)
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def wait_for_state(self, job_id: str, *states: str, timeout_s: float) -> str:
        """Return the state of a job as soon as it is one of these."""

        def state() -> str:
            now = self.job(job_id)["JobState"]
            return now if now in states else ""

        return wait_until(state, timeout_s=timeout_s, what=f"job {job_id} {' or '.join(states)}")

    def set_time_limit(self, job_id: str, *, minutes: int) -> None:
        """Change a job's time limit to so many minutes from now, or from its start if it waits."""
        hours, minute, _ = self.job(job_id)["RunTime"].split(":")
        limit = 60 * int(hours) + int(minute) + minutes
        run("scontrol", "update", f"JobId={job_id}", f"TimeLimit={limit}", timeout_s=30)


def since(began: float) -> str:
    """Return minutes and seconds since a moment of ``time.monotonic``."""
    minutes, seconds = divmod(time.monotonic() - began, 60)
    return f"{minutes:.0f}:{seconds:02.0f}"
