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
CLOUD_MISTAKES: list[tuple[Mistake, str]] = [
    (typo("max_workers", wrong="max_worker"), "'max_worker' was unexpected"),
    (typo("provider", "region", wrong="regoin"), "provider.regoin is unknown: did you mean regi"),
    (put("provider", "region", value=""), "provider.region is missing"),
    (put("auth", value={}), "auth.ssh_user is missing"),
    (put("head_node_type", value="haed"), "head_node_type is 'haed'"),
    (put(*GPU, "min_workers", value=3), "gpu: min_workers is 3 and max_workers 2"),
    (put(*GPU, "min_workers", value=-1), "gpu has a negative number"),
    (put("max_workers", value=0), "max_workers is 0, and the types"),
    (put(*GPU, "resources", "GPU", value=-1), "available_node_types.gpu.resources.GPU: -1"),
    (
        typo(*GPU, "node_config", "InstanceType", wrong="InstanceTyp"),
        "node_config.InstanceTyp is unknown: did you mean InstanceType?",
    ),
    (
        typo(*GPU, "node_config", "InstanceType", wrong="instance"),
        "gpu.node_config.InstanceType is missing",
    ),
    (
        typo(*GPU, "node_config", "ImageId", wrong="Monitoring"),
        "gpu.node_config.ImageId is missing",
    ),
    (put("file_mounts", value={"~/cast_ray": "."}), "file_mounts has no ~/.ray/auth_token"),
    (
        put("docker", "image", value="rayproject/ray:2.9.0-py311"),
        "docker.image is rayproject/ray:2.9",
    ),
    (
        put(*GPU, "docker", "worker_image", value="rayproject/ray:2.60.0-py310-gpu"),
        "gpu.docker.worker_image is rayproject/ray:2.60.0-py310-gpu",
    ),
    (
        replaced("head_start_ray_commands", "127.0.0.1", "0.0.0.0"),
        "head_start_ray_commands: the dashboard",
    ),
    (
        replaced("head_start_ray_commands", "--autoscaling-config=~/ray_bootstrap_config.yaml", ""),
        "never starts a worker",
    ),
    (
        replaced("worker_start_ray_commands", "RAY_AUTH_MODE=token ray start", "ray start"),
        "worker_start_ray_commands: `ray start` without RAY_AUTH_MODE=token",
    ),
    (replaced("worker_start_ray_commands", "65536;", "65536 &&"), "ulimit … &&"),
    (
        replaced("worker_start_ray_commands", "--address=$RAY_HEAD_IP:6379", ""),
        "needs --address=$RAY_HEAD_IP:6379",
    ),
    (put("worker_start_ray_commands", value=["ray stop"]), "has 0 `ray start`"),
    (
        put(*GPU, "node_config", "InstanceType", value="p5.48xlarge"),
        "GPU is 4 and a p5.48xlarge has 8",
    ),
    (put(*GPU, "resources", "GPU", value=8), "GPU is 8 and a g6e.12xlarge has 4"),
    (
        replaced("worker_start_ray_commands", "--object-store-memory=10000000000", ""),
        "worker_start_ray_commands: `ray start` without --object-store-memory",
    ),
]
SSH_MISTAKES: list[tuple[Mistake, str]] = [
    (put("head_node_type", value="head"), "head_node_type is not for provider local"),
    (put("min_workers", value=3), "min_workers is 3 and provider.worker_ips has 2"),
    (put("provider", "head_ip", value=""), "provider.head_ip is missing"),
    (typo("provider", "worker_ips", wrong="workers_ips"), "did you mean worker_ips?"),
    (put("provider", "worker_ips", value=["10.77.0.1", "10.77.0.2"]), "a machine twice"),
]


@pytest.mark.parametrize("path", [CLOUD, SSH], ids=lambda path: path.name)
def test_the_files_of_the_repository_are_right(path: Path) -> None:
    assert faults_of(read_cluster_file(path)) == []
    done = CliRunner().invoke(app, ["doctor", "--cluster-file", str(path)])
    assert (done.exit_code, "nothing wrong" in done.output) == (0, True)


@pytest.mark.parametrize(
    ("path", "mistake", "words"),
    [
        *((CLOUD, mistake, words) for mistake, words in CLOUD_MISTAKES),
        *((SSH, mistake, words) for mistake, words in SSH_MISTAKES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_named(path: Path, mistake: Mistake, words: str) -> None:
    cluster = read_cluster_file(path)
    mistake(cluster)
    assert any(words in fault for fault in faults_of(cluster)), faults_of(cluster)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "line 1.*YAML"),
        ("- a\n- b\n", "cluster.yaml.*cluster_name"),
        (None, "cluster.yaml.*No such file"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_cluster_file(path)


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
