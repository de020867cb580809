"""The cluster as its user handles it from the launcher: Ray's own commands, each with a limit."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ray.util.state import list_actors, list_nodes
from ray.util.state.exception import RayStateApiException

from tests.cluster.machines import ROOT

DASHBOARD = "http://127.0.0.1:8265"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A living actor of Ray."""

    name: str
    """Its class, or what Serve calls it."""
    address: str
    """Of its machine."""


def run(*command: str, timeout_s: float, **env: str) -> str:
    """Return what a command of the launcher's prints, in the checkout's folder.

    Raises:
        AssertionError: it failed, or took longer; with what it printed.
    """
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{' '.join(command)}: {error}\n{error.stdout}") from None
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}"
    return done.stdout


class Cluster:
    """A cluster of a file."""

    def __init__(self, file: Path) -> None:
        """Take a cluster file."""
        self._file = str(file)
        self._dashboard: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Call `ray up` as the file says."""
        run("ray", "up", "-y", self._file, timeout_s=300, RAY_UP_enable_autoscaler_v2="0")

    def open_dashboard(self) -> None:
        """Bring the head's dashboard to ``DASHBOARD`` until ``close_dashboard``."""
        with open(Path(self._file).with_name("dashboard.log"), "w") as log:
            self._dashboard = subprocess.Popen(
                ["ray", "dashboard", self._file],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def close_dashboard(self) -> None:
        """End what ``open_dashboard`` began, as Ctrl-C does."""
        assert self._dashboard is not None
        os.killpg(self._dashboard.pid, signal.SIGINT)  # ssh too: it would hold the way open
        self._dashboard.wait(timeout=30)

    def nodes_alive(self) -> set[str]:
        """Return the addresses of nodes that Ray believes to be alive; none while it is silent."""
        try:
            nodes = list_nodes(address=DASHBOARD, timeout=10, raise_on_missing_output=False)
        except (RayStateApiException, RuntimeError, OSError):  # the dashboard is not there yet
            return set()
        return {node.node_ip for node in nodes if node.state == "ALIVE"}

    def actors(self) -> list[Placed]:
        """Return the living actors."""
        nodes = list_nodes(address=DASHBOARD, timeout=60)
        address_of = {node.node_id: node.node_ip for node in nodes}
        alive = [("state", "=", "ALIVE")]
        actors = list_actors(address=DASHBOARD, filters=alive, limit=1000, detail=True, timeout=60)
        return [
            Placed(name=actor.name or actor.class_name, address=address_of[actor.node_id])
            for actor in actors
        ]

    def down(self) -> None:
        """Call configs/cluster/down.sh, which ends everything."""
        run("bash", "configs/cluster/down.sh", self._file, timeout_s=300)
