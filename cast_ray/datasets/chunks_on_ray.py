"""Compute chunks in Ray tasks, on the cluster at RAY_ADDRESS or on a local Ray."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from cast_ray.cluster.session import ray_session
from cast_ray.datasets.chunks import CHUNKS_AHEAD, Chunk, ChunkWorkers, compute_chunk
from cast_ray.errors import EnvironmentSetupError
from cast_ray.games.generators import PuzzleSource

_MAX_RETRIES = 3


@contextmanager
def ray_tasks(num_workers: int) -> Iterator[ChunkWorkers]:
    """Compute chunks in Ray tasks of one core; tasks are retried if their process or node dies.

    Raises:
        EnvironmentSetupError: the retries failed too, or Ray itself failed.
    """
    # Any: Ray's remote functions have .remote, which its types do not tell.
    task: Any = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(compute_chunk)

    def submit(source: PuzzleSource, index: int) -> Future[Chunk]:
        return task.remote(source, index).future()

    with ray_session(num_cpus=num_workers):
        try:
            yield ChunkWorkers(submit=submit, max_pending=CHUNKS_AHEAD * num_workers)
        except RayTaskError:
            raise  # our own error or a bug, as without Ray
        except RayError as error:
            raise EnvironmentSetupError(
                f"Ray could not compute the boards ({type(error).__name__}) in {_MAX_RETRIES} "
                "retries: check its nodes, then run the same command again, which continues where "
                "this one stopped"
            ) from error
