"""Ray for the length of one job."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from cast_ray.jobs.cluster_connection import join_cluster

_OBJECT_STORE_BYTES = 512 * 2**20


@contextmanager
def ray_session(*, num_cpus: float) -> Iterator[bool]:
    """Use the cluster named by RAY_ADDRESS, or start Ray on this machine; leave it at the end.

    SIGTERM is Ctrl-C meanwhile: what was started is ended in order. Ray's own handler aborts the
    process three seconds later, and engines of a run that was starting stay in the cluster's Serve.

    Args:
        num_cpus: what the run reserves. A local Ray is told so many, whatever the machine has:
            the parts of a step take turns, so that reservations may exceed the cores.

    Yields:
        Whether the cluster was there before.

    Raises:
        ConfigError, EnvironmentSetupError, RemoteTimeout: it cannot be joined.
    """
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    address = os.environ.get("RAY_ADDRESS")
    if address:
        # Kernels of any node go where they are of this version.
        kernels = {"NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]}
        join_cluster(address, runtime_env={"env_vars": kernels})
    else:
        ray.init(
            address="local",
            num_cpus=int(-(-num_cpus // 1)),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield bool(address)
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, previous)
