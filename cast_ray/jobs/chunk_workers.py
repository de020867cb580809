"""Who computes chunks: this process, or several on this machine."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

from cast_ray.errors import EnvironmentSetupError
from cast_ray.generators import PuzzleSource
from cast_ray.jobs.chunks import Chunk, compute_chunk
from serve.watchdog import end_with_parent

CHUNKS_AHEAD = 2
"""Chunks a worker is given at a time, so that none waits while results are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWorkers:
    """Takes chunks to compute, in any order."""

    submit: Callable[[PuzzleSource, int], Future[Chunk]]
    max_pending: int
    """Chunks that may be under way at the same time."""


@contextmanager
def this_process() -> Iterator[ChunkWorkers]:
    """Compute each chunk when it is asked for."""

    def submit(source: PuzzleSource, index: int) -> Future[Chunk]:
        future: Future[Chunk] = Future()
        future.set_result(compute_chunk(source, index))
        return future

    yield ChunkWorkers(submit=submit, max_pending=1)


@contextmanager
def processes(num_workers: int) -> Iterator[ChunkWorkers]:
    """Compute chunks in processes of this machine, which end with the block.

    Raises:
        EnvironmentSetupError: a process died.
    """
    # Not forked: numba and Arrow have threads, and a fork in the middle of theirs can hang.
    executor = ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
    )
    try:
        yield ChunkWorkers(
            submit=lambda source, index: executor.submit(compute_chunk, source, index),
            max_pending=CHUNKS_AHEAD * num_workers,
        )
    except BrokenProcessPool:
        raise EnvironmentSetupError(
            "a worker process died, for lack of memory perhaps: start the same command again, it "
            "goes on where it stopped, with fewer --workers if need be"
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Leave Ctrl-C to the process that started this one, and end when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Idle workers hold each other's pipe open: left alone they would wait for work for ever.
    end_with_parent()
