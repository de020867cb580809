"""Chunks of attempts: the unit that a worker computes and that survives a killed build.

Chunks are computed in this process or in several processes of this machine; for Ray see
``chunks_on_ray``.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from cast_ray.errors import CastRayError, EnvironmentSetupError, PuzzleError
from cast_ray.files import write_text
from cast_ray.games.generators import PuzzleSource, draw_puzzle
from cast_ray.games.puzzles import Puzzle, read_puzzle_metadata, read_puzzles, write_puzzles
from serve.orphans import kill_with_parent
from solver_actors.registry import StartSolver

CHUNK_ATTEMPTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The puzzles of ``CHUNK_ATTEMPTS`` attempts from ``index * CHUNK_ATTEMPTS``."""

    index: int
    attempts: Sequence[int]
    """``[n]`` ascending."""
    puzzles: Sequence[Puzzle]
    """``[n]``, no two equal up to symmetry."""

    def outcomes(self) -> list[Puzzle | None]:
        """Return ``[CHUNK_ATTEMPTS]`` the puzzle of each attempt, or None."""
        outcomes: list[Puzzle | None] = [None] * CHUNK_ATTEMPTS
        for attempt, puzzle in zip(self.attempts, self.puzzles, strict=True):
            outcomes[attempt - self.index * CHUNK_ATTEMPTS] = puzzle
        return outcomes


def compute_chunk(source: PuzzleSource, index: int) -> Chunk:
    """Return one chunk, which depends only on the arguments."""
    solver = StartSolver(source.game)
    found: dict[int, Puzzle] = {}
    known: set[str] = set()
    for attempt in range(index * CHUNK_ATTEMPTS, (index + 1) * CHUNK_ATTEMPTS):
        puzzle = draw_puzzle(
            source, attempt, solve=solver.solve, measure=solver.measures, known=known
        )
        if puzzle is not None:
            known.add(puzzle.puzzle_id)
            found[attempt] = puzzle
    return Chunk(index=index, attempts=tuple(found), puzzles=tuple(found.values()))


class ChunkStore:
    """Finished chunks of a build as small files in a directory, until the build is done."""

    def __init__(self, directory: Path, source: PuzzleSource) -> None:
        """Make the directory, or continue one with the same source.

        Raises:
            PuzzleError: it has chunks of another source.
        """
        self.directory = directory
        self._made_from = source_text(source)
        label = directory / "source.json"
        if not label.exists():
            write_text(label, self._made_from)
        elif (found := label.read_text()) != self._made_from:
            raise PuzzleError(
                f"{directory} has an unfinished build with other settings "
                f"({differences(found, self._made_from)}): finish it, delete it, or give "
                "another --out"
            )

    def __contains__(self, index: int) -> bool:
        return self._path(index).exists()

    def write(self, chunk: Chunk) -> None:
        """Store a chunk, completely or not at all."""
        metadata = {"attempts": json.dumps(chunk.attempts)}
        write_puzzles(self._path(chunk.index), chunk.puzzles, metadata=metadata)

    def read(self, index: int) -> Chunk:
        """Return a stored chunk.

        Raises:
            PuzzleError: its file is damaged.
        """
        path = self._path(index)
        try:
            attempts = json.loads(read_puzzle_metadata(path)["attempts"])
            return Chunk(index=index, attempts=attempts, puzzles=read_puzzles(path))
        except CastRayError as error:
            raise PuzzleError(f"{error}; delete that file, it will be computed again") from error

    def remove(self) -> None:
        """Delete the directory: the build is done."""
        shutil.rmtree(self.directory)

    def _path(self, index: int) -> Path:
        return self.directory / f"chunk-{index:06d}.parquet"


def source_text(source: PuzzleSource) -> str:
    """Return everything that determines a chunk's content, as one line of JSON."""
    made_from = asdict(source) | {
        "level": asdict(source.level),
        "attempts_per_chunk": CHUNK_ATTEMPTS,
        "version": version("cast-ray"),
    }
    return json.dumps(made_from, sort_keys=True)


def differences(found: str, wanted: str) -> str:
    """Describe how two JSON objects of settings differ."""
    try:
        there, here = json.loads(found), json.loads(wanted)
    except ValueError:
        return "they cannot be read"
    return ", ".join(
        f"{key} {there.get(key)} and not {here.get(key)}"
        for key in sorted(there.keys() | here.keys())
        if there.get(key) != here.get(key)
    )


CHUNKS_AHEAD = 2
"""Chunks queued per worker, so that none waits while results are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWorkers:
    """Compute chunks in any order."""

    submit: Callable[[PuzzleSource, int], Future[Chunk]]
    max_pending: int
    """How many chunks may be in progress at a time."""


@contextmanager
def this_process() -> Iterator[ChunkWorkers]:
    """Compute each chunk when it is submitted."""

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
    # Not forked: numba and Arrow have threads, and a forked child can hang on their locks.
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
            "a worker process died, perhaps for lack of memory: run the same command again, which "
            "continues where this one stopped, with fewer --workers if necessary"
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent process, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Idle workers keep each other's pipe open and would wait for work for ever.
    kill_with_parent()
