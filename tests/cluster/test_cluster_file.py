"""The cluster files of the repository are right, and each mistake in them is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.cluster.cluster_file import faults_of, read_cluster_file
from cast_ray.errors import ConfigError
from tests.support.refusals import refused

ROOT = Path(__file__).parents[2]
CLOUD, SSH = ROOT / "cluster.yaml", ROOT / "configs" / "cluster" / "ssh.yaml"

Mistake = Callable[[dict[str, Any]], object]


def typo(*path: str, wrong: str) -> Mistake:
    """Return what misspells the last key of a path."""

    def make(cluster: dict[str, Any]) -> None:
        for key in path[:-1]:
            cluster = cluster[key]
        cluster[wrong] = cluster.pop(path[-1])

    return make


def put(*path: str, value: object) -> Mistake:
    """Return what gives a key another value."""

    def make(cluster: dict[str, Any]) -> None:
        for key in path[:-1]:
            cluster = cluster[key]
        cluster[path[-1]] = value

    return make


def replaced(key: str, old: str, new: str) -> Mistake:
    """Return what changes the text of commands."""

    def make(cluster: dict[str, Any]) -> None:
        lines = cluster[key]
        assert any(old in line for line in lines)
        cluster[key] = [line.replace(old, new) for line in lines]

    return make


GPU = ("available_node_types", "gpu")
HEAD, WORKER = "head_start_ray_commands", "worker_start_ray_commands"
CLOUD_MISTAKES: list[tuple[Mistake, str]] = [
    (typo("max_workers", wrong="max_worker"), "'max_worker'"),
    (typo("provider", "region", wrong="regoin"), "provider.regoin region"),
    (put("provider", "region", value=""), "provider.region"),
    (put("auth", value={}), "auth.ssh_user"),
    (put("head_node_type", value="haed"), "head_node_type 'haed' gpu"),
    (put(*GPU, "min_workers", value=3), "available_node_types.gpu min_workers 3 max_workers 2"),
    (put(*GPU, "min_workers", value=-1), "available_node_types.gpu"),
    (put("max_workers", value=0), "max_workers 0 1"),
    (put(*GPU, "resources", "GPU", value=-1), "available_node_types.gpu.resources.GPU -1"),
    (
        typo(*GPU, "node_config", "InstanceType", wrong="InstenceType"),
        "gpu.node_config.InstenceType InstanceType",
    ),
    (typo(*GPU, "node_config", "InstanceType", wrong="x"), "gpu.node_config.InstanceType"),
    (typo(*GPU, "node_config", "ImageId", wrong="Monitoring"), "gpu.node_config.ImageId"),
    (put("file_mounts", value={"~/cast_ray": "."}), "file_mounts ~/.ray/auth_token --generate"),
    (
        put("docker", "image", value="rayproject/ray:2.9.0-py311"),
        "docker.image rayproject/ray:2.9.0-py311",
    ),
    (
        put(*GPU, "docker", "worker_image", value="rayproject/ray:2.60.0-py310-gpu"),
        "gpu.docker.worker_image rayproject/ray:2.60.0-py310-gpu -py311",
    ),
    (replaced(HEAD, "127.0.0.1", "0.0.0.0"), f"{HEAD} --dashboard-host=127.0.0.1"),
    (
        replaced(HEAD, "--autoscaling-config=~/ray_bootstrap_config.yaml", ""),
        f"{HEAD} --autoscaling-config=~/ray_bootstrap_config.yaml",
    ),
    (
        replaced(WORKER, "RAY_AUTH_MODE=token ray start", "ray start"),
        f"{WORKER} RAY_AUTH_MODE=token",
    ),
    (replaced(WORKER, "65536;", "65536 &&"), f"{WORKER} ulimit && `;`"),
    (
        replaced(WORKER, "--address=$RAY_HEAD_IP:6379", ""),
        f"{WORKER} --address=$RAY_HEAD_IP:6379",
    ),
    (put(WORKER, value=["ray stop"]), f"{WORKER} 0 `ray start`"),
    (
        put(*GPU, "node_config", "InstanceType", value="p4d.24xlarge"),
        "gpu.resources.GPU 4 p4d.24xlarge 8",
    ),
    (put(*GPU, "resources", "GPU", value=8), "gpu.resources.GPU 8 g6e.12xlarge 4"),
    (
        replaced(WORKER, "--object-store-memory=10000000000", ""),
        f"{WORKER} --object-store-memory --shm-size",
    ),
    (
        put(*GPU, "node_config", "IamInstanceProfile", value={"Name": "mine"}),
        "available_node_types head, gpu_spot, cpu_spot IamInstanceProfile",
    ),
]
SSH_MISTAKES: list[tuple[Mistake, str]] = [
    (put("head_node_type", value="head"), "head_node_type local"),
    (put("min_workers", value=3), "min_workers 3 provider.worker_ips 2"),
    (put("provider", "head_ip", value=""), "provider.head_ip"),
    (typo("provider", "worker_ips", wrong="workers_ips"), "provider.workers_ips worker_ips"),
    (put("provider", "worker_ips", value=["10.77.0.1", "10.77.0.2"]), "provider.worker_ips"),
]


@pytest.mark.parametrize("path", [CLOUD, SSH], ids=lambda path: path.name)
def test_the_files_of_the_repository_are_right(path: Path) -> None:
    assert faults_of(read_cluster_file(path)) == []
    done = CliRunner().invoke(app, ["doctor", "--cluster-file", str(path)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("path", "mistake", "facts"),
    [
        *((CLOUD, mistake, facts) for mistake, facts in CLOUD_MISTAKES),
        *((SSH, mistake, facts) for mistake, facts in SSH_MISTAKES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_named(path: Path, mistake: Mistake, facts: str) -> None:
    """One fault tells the facts, each a word of its own or a part of one."""
    cluster = read_cluster_file(path)
    mistake(cluster)
    faults = faults_of(cluster)
    assert any(all(fact in fault for fact in facts.split()) for fault in faults), faults


@pytest.mark.parametrize(
    ("text", "facts"),
    [("a: [1", ["line 1"]), ("- a\n- b\n", ["cluster_name"]), (None, ["No such file"])],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, text: str | None, facts: list[str]) -> None:
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    with refused(ConfigError, str(path), *facts):
        read_cluster_file(path)


def test_a_model_that_would_travel_to_every_node_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(2**20))
    cluster = read_cluster_file(CLOUD)
    cluster["file_mounts"]["~/model"] = str(tmp_path)
    [fault] = faults_of(cluster)
    assert all(fact in fault for fact in ("file_mounts.~/model", "0.0 GiB", "policy.path"))


def test_faults_end_the_doctor_with_1(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLOUD.read_text().replace("127.0.0.1", "0.0.0.0"))
    done = CliRunner().invoke(app, ["doctor", "--cluster-file", str(path)])
    assert (done.exit_code, "dashboard" in done.output) == (1, True)


def test_no_comment_cuts_a_command() -> None:
    """`` # `` in a command that is not quoted is YAML's, and the rest of the command is gone."""
    for path in (CLOUD, SSH):
        for line in path.read_text().splitlines():
            assert not (line.startswith("  - ") and " # " in line), line
