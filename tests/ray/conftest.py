"""A small Ray for tests that need actors."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Start Ray on this machine; end only what was started here."""
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=256 * 2**20,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield
    ray.shutdown()
