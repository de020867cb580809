"""What `make cluster-test` goes by: it takes long and needs root, so that it is run seldom."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from tests.cluster.rendering import rendered

ROOT = Path(__file__).parents[2]
SSH = ROOT / "configs" / "cluster" / "ssh.yaml"
DOWN = ROOT / "configs" / "cluster" / "down.sh"


def test_cluster_test_changes_user_and_setup_of_the_file_and_nothing_else() -> None:
    before = yaml.safe_load(SSH.read_text())
    after = yaml.safe_load(rendered(SSH.read_text(), environment=Path("/opt/venv")))
    assert after["auth"].pop("ssh_user") != before["auth"].pop("ssh_user")
    assert after["setup_commands"].pop() != before["setup_commands"].pop()
    assert after == before


def _down(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(["bash", DOWN, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_down_refuses_a_cluster_that_ray_ends_by_itself() -> None:
    code, output = _down(str(ROOT / "cluster.yaml"))
    assert (code, output.count("\n")) == (1, 1), output
    assert output.endswith("cluster.yaml is a cluster of aws: ray down ends it whole\n")


def test_down_without_a_file_says_what_it_wants() -> None:
    code, output = _down()
    assert code != 0
    assert "usage: configs/cluster/down.sh CLUSTER_FILE" in output
