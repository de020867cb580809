"""Upload what the driver writes into its working copy to the run's URI, during training.

Each pass compares the files on disk with what was uploaded, so nothing queues up while a store is
unreachable. Trajectories are uploaded as soon as they are written, other files on request. A group
of episodes counts before it is uploaded: if it is lost with the driver's host, it is replayed with
the same seeds. A checkpoint is written only after everything before it has been uploaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from cast_ray.errors import StorageError
from cast_ray.runs.object_store import delete_file, upload_file
from cast_ray.runs.remote_directories import with_retries
from cast_ray.runs.remote_run import WEIGHTS
from cast_ray.runs.uris import Uri

_LOOK_EVERY_S = 1.0
_PATIENCE_S = 300.0
_WRITTEN_ONCE = ("trajectories/", "inspection/", "puzzles/", "evaluations/")

_Stamp: TypeAlias = tuple[int, int]
"""Size of a file in bytes, and time of its last change in ns."""


class RunPublisher:
    """A thread that keeps a URI equal to a working copy, until ``close``."""

    def __init__(
        self,
        directory: Path,
        uri: Uri,
        *,
        may_write: Callable[[], None],
        there: Mapping[str, int],
        is_copy: bool = False,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Start uploading.

        Args:
            directory: the working copy.
            uri: of the run.
            may_write: raises if this process must not write there any more.
            there: sizes of the files that are already at the URI.
            is_copy: whether the working copy was just downloaded from there.
            patience_s: how long the store may be unreachable at a time.
        """
        self._directory, self._uri = directory, uri
        self._may_write, self._patience_s = may_write, patience_s
        self._sent = {
            name: stamp
            for name, stamp in self._found()
            if there.get(name) == stamp[0] and (is_copy or name.startswith(_WRITTEN_ONCE))
        }
        # Trajectories that are gone here are deleted there too.
        self._sent |= {
            name: (size, 0)
            for name, size in there.items()
            if _is_trajectory(name) and not (directory / name).is_file()
        }
        self._changed = threading.Condition()
        self._asked, self._done = 0, 0
        self._is_closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="run publisher", daemon=True)
        self._thread.start()

    def send(self) -> None:
        """Have everything that is there now uploaded, and return at once.

        Raises:
            StorageError: an earlier upload failed for good.
        """
        with self._changed:
            self._raise_failure()
            self._asked += 1
            self._changed.notify_all()

    def send_all(self) -> None:
        """Return when everything that is there now is at the URI.

        Raises:
            StorageError: the store was unreachable for too long; the working copy is complete.
        """
        self.send()
        with self._changed:
            target = self._asked
            self._changed.wait_for(lambda: self._done >= target or self._failure is not None)
            self._raise_failure()

    def close(self) -> None:
        """End the thread after the file that it is uploading."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _raise_failure(self) -> None:
        if isinstance(self._failure, StorageError):
            raise StorageError(
                f"{self._uri} could not be written for {self._patience_s:.0f} s "
                f"({self._failure}); nothing is lost: everything is in {self._directory} on this "
                "host, and the same command with --resume, on this host, uploads it and continues"
            ) from self._failure
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_closed:
                done = with_retries(self._pass, patience_s=self._patience_s, rest=self._rest)
                with self._changed:
                    self._done = done
                    self._changed.notify_all()
                    if self._asked == done and not self._is_closed:
                        self._changed.wait(_LOOK_EVERY_S)
        except BaseException as error:  # raised by the next call of send
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _rest(self, delay_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, timeout=delay_s)

    def _pass(self) -> int:
        """Upload what has changed, delete what is gone, and return the request that this answers.

        Once the publisher is closed, nothing more is written.
        """
        asked = self._asked
        everything = asked > self._done
        found = dict(self._found())
        for name, stamp in found.items():
            if self._is_closed:
                return asked
            if self._sent.get(name) == stamp or not (everything or _is_trajectory(name)):
                continue
            self._may_write()
            try:
                upload_file(self._directory / name, self._uri / name)
            except FileNotFoundError:  # a group whose step was written in the meantime
                continue
            self._sent[name] = stamp
        # Only trajectories are ever deleted or moved, and a step is uploaded before its groups go.
        for name in [name for name in self._sent if _is_trajectory(name) and name not in found]:
            if self._is_closed:
                break
            self._may_write()
            delete_file(self._uri / name)
            del self._sent[name]
        return asked

    def _found(self) -> Iterator[tuple[str, _Stamp]]:
        """Yield the working copy's files: groups, then steps that replace them, then others."""
        groups = sorted(self._directory.glob("trajectories/groups/*"))
        steps = sorted(self._directory.glob("trajectories/*"))
        others = sorted(self._directory.rglob("*"))
        for path in dict.fromkeys([*groups, *steps, *others]):
            name = path.relative_to(self._directory).as_posix()
            if path.name.startswith(".") or name.partition("/")[0] in WEIGHTS:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                yield name, (status.st_size, status.st_mtime_ns)


def _is_trajectory(name: str) -> bool:
    return name.startswith(("trajectories/", "inspection/"))
