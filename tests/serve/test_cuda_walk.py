"""Weights by file reach a GPU's layers: Qwen3-4B's shapes, on fake CUDA tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cast_ray.cluster.machine import engine_build, installed_versions


@pytest.mark.skipif(
    engine_build(installed_versions()) == "gpu",
    reason="vLLM's build for GPUs makes no attention layer without one",
)
def test_every_tensor_of_an_update_is_used_on_the_engine_s_device() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cuda_walk"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found == {
        "parameters": 4_022_468_096,
        "published": ["cpu"],
        "acquired": ["cuda:0"],
        "same": 398,
        "compared": 399,  # the tied embedding twice
        "results": ["cuda:0"],
        "rounding": ["cuda:0"],
        # Why they are moved: a product of two devices is refused.
        "as_published": "FakeTensorDeviceMismatchError",
    }
