"""Brings published weights to other hosts: once per host, however many engines are on it.

The learner's host has a ``WeightSource``, an actor that serves pieces of the files there. An engine
asks its own ``WeightCarrier`` for a version: the first on a host takes a lock and pulls the pieces
into the host's shared memory, the others find the file. Only a few pieces are in Ray's object store
at a time. A file appears only once its checksum is that of the manifest.

If the learner's host dies, the source dies with the weights: a restarted learner needs a new source
on its host, and publishes again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from blake3 import blake3
from filelock import FileLock, Timeout
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cast_ray.errors import CastRayError, RemoteTimeout, WeightSyncError
from cast_ray.files import refusals_named, written_aside
from cast_ray.weights.file import join_checksums, map_file, open_for_writing, write_all
from cast_ray.weights.manifest import (
    SPARE,
    VERSIONS_KEPT,
    WeightManifest,
    announce,
    latest_manifest,
    make_private,
    mismatch,
)

NAMESPACE = "cast_ray"
"""Of the sources: engines are in Serve's namespace, the job in its own."""
PIECES_IN_FLIGHT = 3
"""Requested at the same time: what one transfer takes of the object store, in 64 MiB pieces."""
_MAX_RESTARTS = 20
_LOCK = ".carrier.lock"
_POLL_S = 0.02


class WeightSource:
    """Serves what is published in a directory of its host."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def latest(self) -> WeightManifest | None:
        """Return the newest manifest; None before anything is published."""
        return latest_manifest(self._directory)

    def piece(self, version: int, begin: int, size: int) -> np.ndarray:
        """Return the bytes of one piece of a version, ``size`` of them unless it is the last.

        Raises:
            WeightSyncError: the version is not here, or not any more.
        """
        path = self._directory / f"weights-{version}.safetensors"
        try:
            mapping = map_file(path)
        except OSError as error:
            raise WeightSyncError(
                f"the learner's host has no version {version} at {path} ({error.strerror}); "
                f"publish it again"
            ) from error
        count = min(size, len(mapping) - begin)
        return np.frombuffer(mapping, dtype=np.uint8, offset=begin, count=count)


def start_source(
    name: str, *, directory: str, node_id: str, kind: type[WeightSource] = WeightSource
) -> Any:
    """Start the source of a run on the learner's host; return its handle (Any: Ray's).

    It restarts when it is killed, and ends with the process that started it.

    Args:
        name: by which carriers find it; contains the run's id.
        directory: where the learner publishes.
        node_id: Ray's id of the learner's host.
        kind: of source; tests have their own.
    """
    actor: Any = ray.remote(kind)
    return actor.options(
        name=name,
        namespace=NAMESPACE,
        num_cpus=0,
        max_concurrency=4,
        max_restarts=_MAX_RESTARTS,
        max_task_retries=_MAX_RESTARTS,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    ).remote(directory)


def clear_hosts(directory: str, *, timeout_s: float) -> None:
    """Delete a run's files on every living host, at the end of the run.

    Raises:
        RemoteTimeout: a host did not answer; its files stay.
    """
    remove: Any = ray.remote(shutil.rmtree)
    removals = [
        remove.options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=True),
        ).remote(directory, ignore_errors=True)
        for node in ray.nodes()
        if node["Alive"]
    ]
    _, waiting = ray.wait(removals, num_returns=len(removals), timeout=timeout_s)
    if waiting:
        raise RemoteTimeout(
            f"{len(waiting)} of {len(removals)} hosts did not delete {directory} within "
            f"{timeout_s} s; delete it there"
        )


class WeightCarrier:
    """Brings versions to this host; one per engine, any number on a host."""

    def __init__(self, source: str, *, directory: str, timeout_s: float) -> None:
        """Prepare a carrier; the source is looked for when it is needed.

        Args:
            source: name of the run's ``WeightSource``; empty if all is on one host.
            directory: of this host's files, the same path on every host.
            timeout_s: limit for one transfer.
        """
        self._source, self._timeout_s = source, timeout_s
        self._directory = Path(directory)

    def current(self) -> WeightManifest | None:
        """Return the newest version, brought to this host; None before the first.

        Raises:
            WeightSyncError: it arrived damaged, or was deleted.
            RemoteTimeout: the source did not answer.
            EnvironmentSetupError: this host has no room for it.
        """
        here = latest_manifest(self._directory)
        source = self._find_source()
        if source is None:
            return here
        newest = self._get(source.latest.remote(), time.monotonic() + self._timeout_s)
        if newest is None or (here is not None and here.version >= newest.version):
            return here
        return self.bring(newest)

    def place(self, manifest: WeightManifest) -> WeightManifest:
        """Return the manifest that a version has on this host, and make its folder; no transfer.

        Raises:
            EnvironmentSetupError: the folder cannot be made.
        """
        return replace(manifest, path=str(make_private(self._directory) / Path(manifest.path).name))

    def bring(self, manifest: WeightManifest) -> WeightManifest:
        """Return the manifest of a version on this host, transferring it if necessary.

        Raises:
            WeightSyncError: it arrived damaged, or was deleted.
            RemoteTimeout: the source did not answer.
            EnvironmentSetupError: this host has no room for it.
        """
        if not self._source:
            return manifest  # all is on one host: the reader verifies the file
        local = replace(manifest, path=str(self._directory / Path(manifest.path).name))
        if _is_here(local):
            return local
        deadline = time.monotonic() + self._timeout_s
        with _locked(make_private(self._directory) / _LOCK, deadline):
            if not _is_here(local):
                self._transfer(local, deadline)
        return local

    def _transfer(self, local: WeightManifest, deadline: float) -> None:
        source = self._find_source()
        if source is None:
            raise RemoteTimeout(
                f"version {local.version} is not in {self._directory} of this host, and no source "
                f"{self._source!r} has it; publish it again"
            )
        path = Path(local.path)
        with written_aside(path) as aside:
            file = open_for_writing(aside, local.num_bytes, spare=self._directory / SPARE)
            try:
                digests = []
                for index, piece in enumerate(self._pieces(source, local, deadline)):
                    write_all(file, piece.data, index * local.piece_bytes)
                    digests.append(blake3(piece.data).digest())
            finally:
                os.close(file)
            if (checksum := join_checksums(digests)) != local.checksum:
                raise mismatch(local, "checksum after its transfer", checksum, local.checksum)
        announce(local, keep=VERSIONS_KEPT)

    def _pieces(
        self, source: Any, manifest: WeightManifest, deadline: float
    ) -> Iterator[np.ndarray]:
        """Yield the pieces in order, a few requested ahead."""
        asked: deque[ray.ObjectRef] = deque()
        size = manifest.piece_bytes
        for begin in range(0, manifest.num_bytes, size):
            if len(asked) == PIECES_IN_FLIGHT:
                yield self._get(asked.popleft(), deadline)
            asked.append(source.piece.remote(manifest.version, begin, size))
        while asked:
            yield self._get(asked.popleft(), deadline)

    def _find_source(self) -> Any:
        """Return the source's handle (Any: Ray's); None if there is no source."""
        if not self._source:
            return None
        try:
            return ray.get_actor(self._source, namespace=NAMESPACE)
        except ValueError:
            return None

    def _get(self, reference: ray.ObjectRef, deadline: float) -> Any:
        try:
            return ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except GetTimeoutError as error:
            raise RemoteTimeout(
                f"the weight source {self._source} did not answer within {self._timeout_s} s"
            ) from error
        except RayTaskError as error:
            if isinstance(error.cause, CastRayError):
                raise type(error.cause)(f"weight source {self._source}: {error.cause}") from error
            raise
        except RayError as error:
            raise RemoteTimeout(
                f"the weight source {self._source} is gone ({error}); publish again"
            ) from error


def _is_here(local: WeightManifest) -> bool:
    """Return whether this host has announced exactly this file."""
    path = Path(local.path)
    try:
        found = WeightManifest.from_json(path.with_suffix(".json").read_bytes())
        return found == local and path.stat().st_size == local.num_bytes
    except (FileNotFoundError, ValueError):
        return False


def _locked(path: Path, deadline: float) -> AbstractContextManager[object]:
    """Take a lock among this host's processes, held in the block; it ends with its process."""
    with refusals_named(path):
        lock = FileLock(path, timeout=max(deadline - time.monotonic(), 0.0), mode=0o600)
        try:
            return lock.acquire(poll_interval=_POLL_S)
        except Timeout:
            raise RemoteTimeout(
                f"another engine of this host holds {path} and did not finish its transfer"
            ) from None
