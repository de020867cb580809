"""Find mistakes in a cluster file that `ray up` does not report.

Ray checks only the keys that it reads itself. It passes settings of machines to the cloud as they
are, so that a misspelt one is found after minutes or never, and it starts a cluster without a
token, or with a public dashboard, without a warning.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from cast_ray.cluster.code_version import ray_version
from cast_ray.errors import ConfigError
from cast_ray.files import read_yaml

_PROVIDER_KEYS = {
    "aws": {
        "type",
        "aws_credentials",
        "region",
        "availability_zone",
        "cache_stopped_nodes",
        "use_internal_ips",
        "use_internal_ip",
        "key_pair",
        "security_group",
        "cloudwatch",
        "disable_launch_config_check",
    },
    "local": {"type", "head_ip", "worker_ips", "coordinator_address", "external_head_ip"},
}
"""The provider settings that Ray reads; other providers are not checked."""
_NODE_KEYS = {
    "BlockDeviceMappings",
    "CapacityReservationSpecification",
    "CpuOptions",
    "EbsOptimized",
    "IamInstanceProfile",
    "ImageId",
    "InstanceMarketOptions",
    "InstanceType",
    "KeyName",
    "MetadataOptions",
    "Monitoring",
    "NetworkInterfaces",
    "Placement",
    "SecurityGroupIds",
    "SubnetId",
    "SubnetIds",
    "TagSpecifications",
    "UserData",
}
"""The settings of an EC2 instance that make sense for a cluster."""
_WEIGHTS = "*.safetensors"
_START_COMMANDS = ("head_start_ray_commands", "worker_start_ray_commands")


def read_cluster_file(path: Path) -> dict[str, Any]:
    """Return the content of a cluster file.

    Raises:
        ConfigError: it cannot be read, or is not a YAML mapping.
    """
    found = read_yaml(path)
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a cluster file: it has no keys such as cluster_name")
    return found


def faults_of(cluster: Mapping[str, Any]) -> list[str]:
    """Return the faults of a cluster file, one sentence each; empty if there are none."""
    malformed = list(_schema_faults(cluster))
    if malformed:  # the other checks assume valid types
        return malformed
    provider = cluster["provider"]["type"]
    return [
        *_provider_faults(cluster, provider),
        *(_local_faults(cluster) if provider == "local" else _type_faults(cluster, provider)),
        *_access_faults(cluster),
        *_storage_faults(cluster),
        *_command_faults(cluster),
        *_version_faults(cluster),
    ]


def _schema_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the file violates Ray's own schema."""
    text = (resources.files("ray.autoscaler") / "ray-schema.json").read_text()
    validator = jsonschema.Draft7Validator(json.loads(text))
    # Ray replaces this key of provider local before it checks the schema.
    is_local = (cluster.get("provider") or {}).get("type") == "local"
    seen = {key: value for key, value in cluster.items() if not (is_local and key == "min_workers")}
    for error in sorted(validator.iter_errors(seen), key=lambda error: list(error.absolute_path)):
        key = ".".join(map(str, error.absolute_path)) or "the file"
        yield f"{key}: {error.message}"


def _provider_faults(cluster: Mapping[str, Any], provider: str) -> Iterator[str]:
    known = _PROVIDER_KEYS.get(provider)
    if known is None:
        return
    yield from _unknown_keys(cluster["provider"], known, "provider")
    if provider == "aws" and not cluster["provider"].get("region"):
        yield "provider.region is missing: set the region of the machines, such as us-west-2"


def _type_faults(cluster: Mapping[str, Any], provider: str) -> Iterator[str]:
    types = cluster.get("available_node_types") or {}
    head = cluster.get("head_node_type")
    if not types:
        yield "available_node_types is missing: list the machines that the cluster may use"
    elif head not in types:
        yield f"head_node_type is {head!r}: it must be one of {', '.join(types)}"
    most = cluster.get("max_workers", 0)
    least = 0
    for name, kind in types.items():
        key = f"available_node_types.{name}"
        low, high = kind.get("min_workers", 0), kind.get("max_workers", most)
        least += 0 if name == head else low
        if low < 0 or high < 0:
            yield f"{key} has a negative number of workers"
        elif low > high:
            yield f"{key}: min_workers is {low} and max_workers {high}: raise the maximum"
        if provider == "aws":
            yield from _unknown_keys(kind["node_config"], _NODE_KEYS, f"{key}.node_config")
            instance = kind["node_config"].get("InstanceType")
            if not instance:
                yield f"{key}.node_config.InstanceType is missing"
            given, has = kind.get("resources", {}).get("GPU"), _gpus_of_instance(str(instance))
            if given is not None and has is not None and given != has:
                yield f"{key}.resources.GPU is {given} and a {instance} has {has}: set it to {has}"
            if not kind["node_config"].get("ImageId"):
                yield f"{key}.node_config.ImageId is missing: Ray's default is too old for PyTorch"
    if least > most:
        yield f"max_workers is {most}, and the types need at least {least}: raise the maximum"


def _gpus_of_instance(instance: str) -> int | None:
    """Return how many GPUs an EC2 instance type has; None if it is not known here."""
    family, _, size = instance.partition(".")
    if re.fullmatch(r"p4de?|p5(e|en)?|p6-b\d+", family):
        return 1 if size == "4xlarge" else 8
    if re.fullmatch(r"g4dn|g5|g6e?", family):
        return {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8, "metal": 8}.get(size, 1)
    return 0 if re.fullmatch(r"[cmrt]\d\w*", family) else None


def _local_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    for key in ("available_node_types", "head_node_type"):
        if key in cluster:
            yield f"{key} is not for provider local, which has one type of machine: remove it"
    workers = cluster["provider"].get("worker_ips") or []
    if not cluster["provider"].get("head_ip"):
        yield "provider.head_ip is missing: set the address of the head"
    for key in ("min_workers", "max_workers"):
        number = cluster.get(key)
        if number is not None and number != len(workers):
            yield f"{key} is {number} and provider.worker_ips has {len(workers)}: make them equal"
    if len({cluster["provider"].get("head_ip"), *workers}) < 1 + len(workers):
        yield "provider.worker_ips lists a machine twice, or the head: list each machine once"


def _access_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    if not (cluster.get("auth") or {}).get("ssh_user"):
        yield "auth.ssh_user is missing: name the user to log in as"
    if not any(path.endswith(".ray/auth_token") for path in cluster.get("file_mounts") or {}):
        yield (
            "file_mounts has no ~/.ray/auth_token: without the token no node can join "
            "(`ray get-auth-token --generate` makes one)"
        )


def _storage_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield types that lack others' right to buckets, and models that travel to every node."""
    profile = "IamInstanceProfile"
    kinds = (cluster.get("available_node_types") or {}).items()
    lacking = [name for name, kind in kinds if profile not in kind["node_config"]]
    if lacking and len(lacking) < len(kinds):
        yield (
            f"available_node_types: {', '.join(lacking)} without the {profile} of the others: what "
            f"runs there cannot reach the bucket; give it to every type"
        )
    for target, source in (cluster.get("file_mounts") or {}).items():
        weights = sum(file.stat().st_size for file in Path(source).expanduser().glob(_WEIGHTS))
        if weights:
            yield (
                f"file_mounts.{target} sends a model of {weights / 2**30:.1f} GiB from here to "
                f"every node: stage it once, in a bucket or on a shared file system, and name that "
                f"as policy.path"
            )


def _command_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    for key in _START_COMMANDS:
        starts = [line for line in cluster.get(key) or [] if re.search(r"\bray start\b", line)]
        if len(starts) != 1:
            yield f"{key} has {len(starts)} `ray start`: exactly one is needed"
            continue
        if "RAY_AUTH_MODE=token" not in starts[0]:
            yield f"{key}: `ray start` without RAY_AUTH_MODE=token accepts jobs from anyone"
        if re.search(r"--dashboard-host[= ](?!127\.0\.0\.1|localhost)\S+", starts[0]):
            yield (
                f"{key}: the dashboard, which can start jobs, has a public address: set "
                "--dashboard-host=127.0.0.1 and use `ray dashboard`"
            )
        if re.search(r"ulimit[^;&]*&&", starts[0]):
            yield f"{key}: `ulimit … &&` starts nothing if the limit cannot be raised: use `;`"
        options = " ".join((cluster.get("docker") or {}).get("run_options") or [])
        if "--shm-size" in options and "--object-store-memory" not in starts[0]:
            yield (
                f"{key}: `ray start` without --object-store-memory takes docker's whole --shm-size "
                "for Ray's objects, and leaves nothing for weights: give it a third"
            )
    head = " ".join(cluster.get("head_start_ray_commands") or [])
    if "ray start" in head and "--autoscaling-config" not in head:
        yield (
            "head_start_ray_commands: `ray start` without "
            "--autoscaling-config=~/ray_bootstrap_config.yaml never starts a worker"
        )
    workers = " ".join(cluster.get("worker_start_ray_commands") or [])
    if "ray start" in workers and "$RAY_HEAD_IP" not in workers:
        yield "worker_start_ray_commands: `ray start` needs --address=$RAY_HEAD_IP:6379 to join"


def _version_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield images with another version of Ray or Python than this project's."""
    wanted = ray_version()
    docker = cluster.get("docker") or {}
    kinds = (cluster.get("available_node_types") or {}).items()
    images = {f"docker.{key}": value for key, value in docker.items()}
    images |= {
        f"available_node_types.{name}.docker.{key}": value
        for name, kind in kinds
        for key, value in (kind.get("docker") or {}).items()
    }
    for key, image in images.items():
        match = re.fullmatch(r"rayproject/ray[\w-]*:([\w.]+)-(py\d+)\S*", str(image))
        if match and (match[1], match[2]) != (wanted, "py311"):
            yield f"{key} is {image}: this version of cast_ray needs {wanted}-py311"


def _unknown_keys(given: Iterable[str], known: set[str], section: str) -> Iterator[str]:
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "remove it, it has no effect"
            yield f"{section}.{key} is unknown: {hint}"
