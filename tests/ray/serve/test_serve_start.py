"""Runs that begin at the same moment share one Serve, whoever of them starts it."""

from __future__ import annotations

import time

import pytest
import ray
from ray import serve as ray_serve

from serve.client.applications import start_serve

pytestmark = pytest.mark.ray


@ray.remote(num_cpus=0)
class Run:
    """A process that starts Serve at a given time."""

    def is_up(self) -> bool:
        return True

    def start_at(self, moment: float) -> str:
        time.sleep(max(0.0, moment - time.time()))  # all at the same moment
        start_serve()
        return str(ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve"))


def test_serve_that_all_start_at_once_is_one(local_ray: None) -> None:
    runs = [Run.remote() for _ in range(4)]
    ray.get([run.is_up.remote() for run in runs], timeout=60)
    try:
        found = ray.get([run.start_at.remote(time.time() + 2) for run in runs], timeout=120)
        assert len(set(found)) == 1
    finally:
        ray_serve.shutdown()
