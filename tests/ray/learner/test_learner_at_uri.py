"""Learner ranks whose model and checkpoints lie at an S3 server, each rank on a host of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from cast_ray.cluster.session import start_ray
from cast_ray.learner.settings import LearnerSettings
from cast_ray.runs.object_store import check_reachable, list_files
from cast_ray.runs.remote_directories import is_whole, localized, upload_directory
from cast_ray.runs.uris import Uri
from tests.support.learner_processes import LearnerProcesses, tensors_of
from tests.support.learner_reference import (
    DAPO,
    LENGTHS,
    ROWS,
    build_policy,
    build_table,
    settings_for,
)
from tests.support.stores import CREDENTIALS, S3Server, environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

TABLE = build_table()
START_LOGPROBS = np.full(sum(LENGTHS), -4.0, dtype=np.float32)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uri]:
    cache = tmp_path_factory.mktemp("cache")
    with environment(**CREDENTIALS, CAST_RAY_CACHE=str(cache)):
        server = S3Server()
        uri = server.uri("models/run")
        check_reachable(uri, timeout_s=20)
        yield uri
        server.stop()


@pytest.fixture(scope="module")
def processes(uri: Uri) -> Iterator[LearnerProcesses]:
    # After the environment, which its processes are to have.
    start_ray(num_cpus=2)
    yield LearnerProcesses()
    ray.shutdown()


@pytest.fixture(scope="module")
def settings(uri: Uri, tmp_path_factory: pytest.TempPathFactory) -> LearnerSettings:
    policy = build_policy(tmp_path_factory.mktemp("policy") / "tiny")
    upload_directory(policy, uri / "start_model")
    made = settings_for(policy, optimizer="adamw", lr=1e-2, max_grad_norm=1.0, zero_stage=2)
    return replace(made, model_dir=uri / "start_model")


def _assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


def test_a_checkpoint_at_a_uri_is_the_local_one_and_goes_on_bit_for_bit(
    processes: LearnerProcesses, settings: LearnerSettings, uri: Uri, tmp_path: Path
) -> None:
    place = uri / "checkpoints/step-00001"
    processes.begin(settings, num_ranks=2)
    processes.call("update", TABLE, ROWS, DAPO, START_LOGPROBS)
    processes.call("save_checkpoint", tmp_path / "local", {"step": 1})
    processes.call("save_checkpoint", place, {"step": 1})
    processes.call("update", TABLE, ROWS, DAPO, START_LOGPROBS)
    processes.call("save_checkpoint", tmp_path / "straight", {"step": 2})

    brought = localized(place)
    names = {path.name for path in (tmp_path / "local").iterdir()}
    assert {path.name for path in brought.iterdir()} == names
    assert "random_states-00001.safetensors" in names
    _assert_equal(tensors_of(brought), tensors_of(tmp_path / "local"))

    processes.begin(settings, num_ranks=2)
    assert processes.call("load_checkpoint", place) == {"step": 1}
    processes.call("update", TABLE, ROWS, DAPO, START_LOGPROBS)
    processes.call("save_checkpoint", tmp_path / "resumed", {"step": 2})
    _assert_equal(tensors_of(tmp_path / "resumed"), tensors_of(tmp_path / "straight"))


def test_a_model_at_a_uri_is_the_local_one(
    processes: LearnerProcesses, settings: LearnerSettings, uri: Uri, tmp_path: Path
) -> None:
    processes.begin(settings, num_ranks=2)
    processes.call("save_model", tmp_path / "local")
    processes.call("save_model", uri / "model")
    brought = localized(uri / "model")
    for path in (tmp_path / "local").iterdir():
        if path.name != "complete.json":
            assert (brought / path.name).read_bytes() == path.read_bytes()


def test_a_checkpoint_is_whole_only_when_every_rank_has_sent_its_files(
    processes: LearnerProcesses, settings: LearnerSettings, uri: Uri
) -> None:
    """Also where an older one of that name was whole. Last: these ranks are of no use after."""
    processes.begin(settings, num_ranks=2)
    place = uri / "checkpoints/step-00009"
    processes.call("save_checkpoint", place, {})
    assert is_whole(place)
    # The second rank has no bucket to write to.
    elsewhere = Uri(place.replace("models", "nowhere").replace("allow_bucket_creation=true", ""))
    first, second = processes._ranks
    waiting = [
        first.save_checkpoint.remote(place, {}),
        second.save_checkpoint.remote(elsewhere, {}),
    ]
    sent_before = {file.name: file.changed_ns for file in list_files(place)}
    wait_until(
        lambda: {file.name: file.changed_ns for file in list_files(place)} != sent_before,
        timeout_s=60,
        what="a file of the first rank",
    )
    time.sleep(3)  # a marker that should not come would come then
    assert not is_whole(place)
    assert ray.wait(waiting, timeout=0)[0] == []
