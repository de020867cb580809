"""A small Ray for tests that need actors, and a learner in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray

from cast_ray.cluster.session import start_ray
from tests.support.learner_double import Probes
from tests.support.learner_reference import (
    LENGTHS,
    NaivePolicy,
    build_policy,
    build_table,
    settings_for,
)


@pytest.fixture(scope="module", autouse=True)
def no_ray_left() -> Iterator[None]:
    """A module whose own fixtures failed leaves no Ray to the next one."""
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Start Ray on this machine; end only what was started here."""
    start_ray(num_cpus=4, object_store_bytes=256 * 2**20)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_policy(tmp_path_factory.mktemp("policy") / "tiny")


@pytest.fixture(scope="module")
def naive(policy_dir: Path) -> NaivePolicy:
    return NaivePolicy(policy_dir)


@pytest.fixture(scope="module")
def start_logprobs(naive: NaivePolicy) -> np.ndarray:
    """Off the present logprobs by so much that every case of the clip occurs."""
    noise = np.random.default_rng(5).normal(scale=0.8, size=sum(LENGTHS))
    return (naive.logprobs(build_table()) + noise).astype(np.float32)


@pytest.fixture(scope="module")
def one_rank(
    local_ray: None,
    policy_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Probes]:
    start = tmp_path_factory.mktemp("start") / "checkpoint"
    probes = Probes(settings_for(policy_dir), num_ranks=1, start=start)
    yield probes
    probes.close()
