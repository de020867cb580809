"""examples/kubernetes/rayjob.yaml: KubeRay's fields, Kubernetes' objects, sizes and commands.

Nothing here meets Kubernetes. KubeRay's definitions are a list that was read by hand; what it makes
of ``rayStartParams`` and the entrypoint is checked with Ray's and our own commands.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ray.scripts.scripts import start

from cast_ray.cluster.placement import Node, found_places, parts_of
from cast_ray.cluster.problems import WEIGHT_FILES
from cast_ray.cluster.submit import stop_wait_s, train_job
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
FIELDS = yaml.safe_load((Path(__file__).parent / "kuberay_fields.yaml").read_text())
TEXT = (ROOT / "examples" / "kubernetes" / "rayjob.yaml").read_text()
SECRET, CLAIM, JOB = yaml.safe_load_all(TEXT)
CONTAINERFILE = (ROOT / "Containerfile").read_text()
KUBERNETES = ["1.30", "1.37"]
"""Checked against; the schemas that lie between are of these two's kind."""
WEIGHTS = 4_022_468_096
"""Of Qwen3-4B-Instruct-2507, with 2 bytes each in bfloat16."""
UNITS = {"": 1, "Gi": 2**30, "Mi": 2**20}
TYPES = {"string": str, "integer": int, "boolean": bool}
KINDS_OF_KUBERNETES = ("pod", "container")


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each field by its path; what the list gives a type as a whole."""
    if path in FIELDS["types"] or not value or not isinstance(value, dict | list):
        yield path, value
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, f"{path}[]")
    else:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}".lstrip("."))


def is_of(value: object, wanted: str | list[str]) -> bool:
    """Return whether a value is of a type of the list."""
    if isinstance(wanted, list):
        return value in wanted
    if wanted == "texts":
        return isinstance(value, dict) and all(type(text) is str for text in value.values())
    return (
        isinstance(value, dict) if wanted in KINDS_OF_KUBERNETES else type(value) is TYPES[wanted]
    )


def field_faults(job: Object) -> list[str]:
    """Return fields that KubeRay does not know, of another type, or missing."""
    found = list(leaves(job))
    wrong = [f"{path}: {value!r}" for path, value in found if path not in FIELDS["types"]]
    known = [(path, value) for path, value in found if path in FIELDS["types"]]
    wrong += [f"{path}: {v!r}" for path, v in known if not is_of(v, FIELDS["types"][path])]
    cluster = job["spec"]["rayClusterSpec"]
    for path in FIELDS["required"]:
        *_, parent, name = path.split(".")
        if parent == "workerGroupSpecs[]":
            holders = cluster["workerGroupSpecs"]
        else:
            holders = [cluster if parent == "rayClusterSpec" else cluster.get(parent, {})]
        wrong += [f"{path} is missing" for holder in holders if name not in holder]
    return wrong


def groups(job: Object) -> dict[str, Object]:
    """Return head and workers by name."""
    cluster = job["spec"]["rayClusterSpec"]
    return {
        "head": cluster["headGroupSpec"],
        **{group["groupName"]: group for group in cluster["workerGroupSpecs"]},
    }


def templates(job: Object) -> dict[str, Object]:
    """Return all pods' templates by name."""
    found = {name: group["template"] for name, group in groups(job).items()}
    return {"submitter": job["spec"]["submitterPodTemplate"], **found}


def core_objects(job: Object) -> list[Object]:
    """Return everything that Kubernetes itself defines; the autoscaler's parts as a container."""
    options = job["spec"]["rayClusterSpec"]["autoscalerOptions"]
    parts = {key: options[key] for key in ("resources", "securityContext")}
    autoscaler = {"spec": {"containers": [{"name": "autoscaler", **parts}]}}
    pods = {**templates(job), "autoscaler": autoscaler}
    kind = {"apiVersion": "v1", "kind": "PodTemplate"}
    found = [{**kind, "metadata": {"name": n}, "template": pod} for n, pod in pods.items()]
    return [SECRET, CLAIM, *found]


def amount(text: str) -> int:
    """Return a quantity of Kubernetes as a number."""
    match = re.fullmatch(r"(\d+)(\w*)", text)
    assert match is not None, text
    return int(match[1]) * UNITS[match[2]]


def limits_of(group: Object) -> Object:
    """Return what a group's container may use, by name."""
    [container] = group["template"]["spec"]["containers"]
    return {name: amount(text) for name, text in container["resources"]["limits"].items()}


def entrypoint() -> list[str]:
    """Return the entrypoint's words after ``exec``, with the checkout in the image's place."""
    first, *words = shlex.split(JOB["spec"]["entrypoint"])
    assert first == "exec"
    assert "\nWORKDIR /opt/cast_ray\n" in CONTAINERFILE
    return [word.replace("/opt/cast_ray", str(ROOT)) for word in words]


def config_of_the_run() -> TrainConfig:
    """Return what the entrypoint trains."""
    program, command, option, file, *overrides = entrypoint()
    assert (program, command, option) == ("cast-ray", "train", "--config")
    return load_config(Path(file), overrides)


def changed(*path: str, value: object) -> Callable[[Object], None]:
    """Return what gives a field of the job another value; None removes it."""

    def change(job: Object) -> None:
        place: Any = job["spec"]
        for key in path[:-1]:
            place = place[int(key) if isinstance(place, list) else key]
        place[path[-1]] = value
        if value is None:
            del place[path[-1]]

    return change


CLUSTER, GPU = ("rayClusterSpec",), ("rayClusterSpec", "workerGroupSpecs", "0")
POD = (*GPU, "template", "spec")


def test_kuberay_knows_every_field() -> None:
    assert field_faults(JOB) == []


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (changed("shutdownAfterJobFinish", value=True), "spec.shutdownAfterJobFinish"),
        (changed(*CLUSTER, "authOptions", "mode", value="tokens"), "authOptions.mode: 'tokens'"),
        (changed(*GPU, "maxReplicas", value="2"), "workerGroupSpecs[].maxReplicas: '2'"),
        (changed(*GPU, "rayStartParams", value={"num-cpus": 0}), "rayStartParams: {'num-cpus': 0}"),
        (changed(*GPU, "minReplicas", value=None), "workerGroupSpecs[].minReplicas is missing"),
        (changed(*CLUSTER, "headGroupSpec", "template", value=None), "template is missing"),
    ],
)
def test_a_wrong_field_is_named(change: Callable[[Object], None], fact: str) -> None:
    job = copy.deepcopy(JOB)
    change(job)
    [fault] = field_faults(job)
    assert fact in fault


@pytest.mark.parametrize("release", KUBERNETES)
def test_kubernetes_accepts_its_own_objects(release: str) -> None:
    assert len(core_objects(JOB)) == 7
    for one in core_objects(JOB):
        assert kubernetes_validate.validate(one, release, strict=True) == release


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (changed(*POD, "containers", "0", "imagePullSecret", value="x"), "imagePullSecret"),
        (changed(*POD, "volumes", "1", "emptyDir", value={"sizelimit": "1Gi"}), "sizelimit"),
        (changed(*CLUSTER, "autoscalerOptions", "resources", value={"limit": {}}), "limit"),
    ],
)
def test_a_wrong_pod_is_refused(change: Callable[[Object], None], fact: str) -> None:
    job = copy.deepcopy(JOB)
    change(job)
    with pytest.raises(kubernetes_validate.ValidationError, match=fact):
        for one in core_objects(job):
            kubernetes_validate.validate(one, "1.37", strict=True)


@pytest.mark.parametrize("name", ["submitter", "head", "gpu", "cpu"])
def test_pods_run_without_root_and_get_what_they_request(name: str) -> None:
    spec = templates(JOB)[name]["spec"]
    [container] = spec["containers"]
    assert f"\nUSER {spec['securityContext']['runAsUser']}:" in CONTAINERFILE
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["image"] == templates(JOB)["head"]["spec"]["containers"][0]["image"]
    assert spec["restartPolicy"] == "Never"  # else KubeRay refuses the autoscaler's version 2


@pytest.mark.parametrize("name", ["head", "gpu", "cpu"])
def test_shared_memory_holds_weights_and_objects(name: str) -> None:
    group = groups(JOB)[name]
    assert CLAIM["spec"]["accessModes"] == ["ReadWriteMany"]
    volumes = {one["name"]: one for one in group["template"]["spec"]["volumes"]}
    [container] = group["template"]["spec"]["containers"]
    place = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
    assert place["/shared"]["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]
    assert place["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    size = amount(place["/dev/shm"]["emptyDir"]["sizeLimit"])
    assert config_of_the_run().engine.dtype == "bfloat16"
    objects = int(group["rayStartParams"]["object-store-memory"])
    assert WEIGHT_FILES * 2 * WEIGHTS + objects <= size < limits_of(group)["memory"]


def test_the_run_fits_on_the_groups() -> None:
    head = groups(JOB)["head"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    nodes = []
    for name, group in groups(JOB).items():
        bundle = {"CPU": limits_of(group)["cpu"], "GPU": limits_of(group).get("nvidia.com/gpu", 0)}
        if name != "head":
            assert 0 == group["minReplicas"] < group["maxReplicas"]
            nodes += [Node(address=name, bundle=bundle)] * group["maxReplicas"]
    config = config_of_the_run()
    assert config.resources.wait_for_nodes_s > 0  # the groups begin without pods
    parts = parts_of(config.resources)
    assert found_places(parts, nodes) == [part.count for part in parts]


def test_the_entrypoint_is_what_submit_would_send() -> None:
    config = config_of_the_run()
    job = train_job(config, name=JOB["spec"]["jobId"], overrides=[], config_file=None, resume=False)
    sent = yaml.safe_load(JOB["spec"]["runtimeEnvYAML"])["env_vars"]
    assert sent == {"RAY_JOB_STOP_WAIT_TIME_S": str(stop_wait_s(config))}
    assert sent.items() <= job.env_vars.items()
    assert config.run_dir.startswith("/shared/")
    # It passes two shells, KubeRay's and Ray's, and must come out of them as it was.
    said = subprocess.check_output(
        ["bash", "-c", f"bash -c 'echo {JOB['spec']['entrypoint']}'"], text=True, timeout=30
    )
    assert said.split() == JOB["spec"]["entrypoint"].split()


def test_the_entrypoint_runs_until_it_lacks_a_model(tmp_path: Path) -> None:
    """As a process, with a model that is nowhere in place of the 8 GB one."""
    words = [f"run_dir={tmp_path}" if w.startswith("run_dir=") else w for w in entrypoint()]
    words[0] = str(Path(sys.executable).parent / words[0])
    done = subprocess.run(
        ["bash", "-c", f"exec {shlex.join([*words, 'policy.path=/nowhere'])}"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert (done.returncode, "/nowhere" in done.stderr) == (2, True), done.stderr


def test_ray_is_the_image_s_and_its_options_exist() -> None:
    cluster = JOB["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == version("ray")
    assert cluster["authOptions"]["secretName"] == SECRET["metadata"]["name"]
    options = {option.lstrip("-") for one in start.params for option in one.opts}
    for group in groups(JOB).values():
        assert group["rayStartParams"].keys() <= options


def test_ray_does_not_start_with_the_file_s_token(tmp_path: Path) -> None:
    token = SECRET["stringData"]["auth_token"]
    assert token == ""
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ray"), "start", "--head", "--port=0"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode != 0
    assert "RAY_AUTH_TOKEN" in done.stderr
