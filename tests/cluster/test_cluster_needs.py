"""What a run needs on every node, and what Ray's refusals are in words; no cluster."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cast_ray.cluster.check import needs_of
from cast_ray.cluster.session import join_cluster, refusal
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError


def model_of(folder: Path, *sizes: int) -> Path:
    """Return a folder with a weights file for each number of values."""
    for number, size in enumerate(sizes):
        values = {"a": np.zeros((size, 1), np.float32), "b": np.zeros((), np.float32)}
        save_file(values, folder / f"model-{number}.safetensors")
    return folder


@pytest.mark.parametrize(("dtype", "num_bytes"), [("bfloat16", 2), ("float32", 4)])
def test_weights_are_counted_over_all_files_as_the_engines_take_them(
    tmp_path: Path, dtype: str, num_bytes: int
) -> None:
    config = load_config(
        None, [f"policy.path={model_of(tmp_path, 30, 40)}", f"engine.dtype={dtype}"]
    )
    assert needs_of(config, run_dir="").weight_bytes == 72 * num_bytes


def test_damaged_weights_are_for_the_nodes_to_tell(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    config = load_config(None, [f"policy.path={tmp_path}"])
    assert needs_of(config, run_dir="").weight_bytes == 0


def test_model_of_a_hub_is_for_the_nodes_to_fetch() -> None:
    name = f"owner/none@{'0' * 40}"
    config = load_config(None, ["objective.kl_coefficient=1", f"objective.reference={name}"])
    needs = needs_of(config, run_dir="")
    assert needs.stores == {"objective.reference": f"hf://{name}"}
    assert needs.models == {}


def test_model_that_is_not_here_is_for_the_nodes_to_tell() -> None:
    needs = needs_of(load_config(None, ["policy.path=/nowhere/one"]), run_dir="/runs/mine")
    assert needs.models == {"policy.path": "/nowhere/one"}
    assert (needs.weight_bytes, needs.run_dir) == (0, "/runs/mine")


def test_quickstart_needs_no_model_and_no_store() -> None:
    needs = needs_of(load_config(None, []), run_dir="")
    assert (needs.models, needs.stores, needs.run_dir) == ({}, {}, "")


@pytest.mark.parametrize(
    ("kl", "reference", "is_needed"),
    [(0.1, "/models/two", True), (0.0, "/models/two", False), (0.1, "start", False)],
)
def test_reference_is_needed_where_the_objective_asks_for_it(
    kl: float, reference: str, is_needed: bool
) -> None:
    values = [f"objective.kl_coefficient={kl}", f"objective.reference={reference}"]
    needs = needs_of(load_config(None, values), run_dir="")
    assert needs.models == ({"objective.reference": reference} if is_needed else {})


def test_run_directory_at_a_uri_is_a_store() -> None:
    needs = needs_of(load_config(None, []), run_dir="s3://runs/mine?region=eu")
    assert needs.stores == {"run_dir": "s3://runs/mine?region=eu"}


@pytest.mark.parametrize("address", ["head", "ray://10.0.0.1:10001", "http://10.0.0.1:8265", ""])
def test_address_that_is_none_of_a_cluster_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=rf"HOST:PORT.*{address!r}"):
        join_cluster(address)


VERSIONS = """Version mismatch: The cluster was started with:
    Ray: 2.50.0
    Python: 3.11.9
This process on node address: 10.0.0.7 was started with:
    Ray: 2.60.0
    Python: 3.11.2
"""


def test_other_versions_of_a_cluster_are_named_in_one_sentence() -> None:
    said = refusal("10.0.0.1:6379", RuntimeError(VERSIONS))
    facts = r"10\.0\.0\.1:6379.*2\.50\.0.*3\.11\.9.*this machine.*2\.60\.0.*3\.11\.2.*install"
    assert re.search(facts, said)


def test_refusal_that_nobody_knows_keeps_rays_last_line() -> None:
    error = ConnectionError("Failed to connect")
    error.__cause__ = RuntimeError("Traceback:\n  frames\nthe disk is on fire")
    said = refusal("10.0.0.1:6379", error)
    assert "10.0.0.1:6379" in said
    assert said.endswith(": the disk is on fire")
