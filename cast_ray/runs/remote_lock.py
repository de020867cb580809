"""Who trains at a URI: one process at a time, by an object that its owner renews while it lives.

A store has no lock that ends with its process. The owner rewrites ``owner.json`` every 20 s; an
owner that was silent for 90 s counts as gone. Hosts whose clocks differ by more than that would
miss each other.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

from cast_ray.errors import RunDirectoryError, StorageError
from cast_ray.files import checked, parse_json
from cast_ray.runs.object_store import find_file, read_bytes, write_bytes
from cast_ray.runs.remote_directories import with_retries
from cast_ray.runs.remote_run import OWNER
from cast_ray.runs.uris import Uri

BEAT_S = 20.0
STALE_S = 90.0
_SETTLE_S = 1.0
"""If two processes claim a run at the same time, the one whose claim stands after this owns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Content of ``owner.json``."""

    copy_id: str
    """Of the working copy that wrote to the run last."""
    host: str
    pid: int
    at: float
    """Last sign of life, as ``time.time``."""
    has_ended: bool = False


def read_claim(uri: Uri) -> Claim | None:
    """Return who owns a run, or owned it last; None if it never had an owner.

    Raises:
        RunDirectoryError: the object is damaged.
    """
    if find_file(uri / OWNER) is None:
        return None
    for _ in range(2):  # its owner may renew it after the store has said its length
        with suppress(ValueError):
            return checked(Claim, parse_json(read_bytes(uri / OWNER)))
    raise RunDirectoryError(f"{uri / OWNER} is damaged: delete it if no process trains this run")


def check_free(uri: Uri, claim: Claim | None, *, copy_id: str | None) -> None:
    """Raise RunDirectoryError if the process of another working copy trains at a URI.

    Args:
        uri: of the run.
        claim: what is stored there.
        copy_id: of this host's working copy, which a local lock restricts to one process.
    """
    if claim is None or claim.has_ended or claim.copy_id == copy_id:
        return
    silent_s = time.time() - claim.at
    if silent_s < STALE_S:
        raise RunDirectoryError(
            f"a process on {claim.host} trains in {uri} (last sign of life {silent_s:.0f} s ago): "
            f"wait until it ends, or, if it was killed, until it has been silent for {STALE_S:.0f} "
            "s, or give another run_dir"
        )


class RunOwner:
    """This process's claim to a run, which it renews until ``release``."""

    def __init__(self, uri: Uri, *, copy_id: str, beat_s: float = BEAT_S) -> None:
        """Claim a run that ``check_free`` found free.

        Raises:
            RunDirectoryError: another process claimed it at the same time.
        """
        self._uri, self._copy_id, self._beat_s = uri, copy_id, beat_s
        self._is_lost = False
        self._ended = threading.Event()
        self._write()
        time.sleep(_SETTLE_S)
        self._look()
        self.check()
        self._thread = threading.Thread(target=self._renew, name="run owner", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise RunDirectoryError if another process has taken over the run."""
        if self._is_lost:
            raise RunDirectoryError(
                f"{self._uri} was taken over by another process, because this one was silent for "
                "too long: this run stops here and writes nothing more there"
            )

    def release(self) -> None:
        """Record that this process no longer trains the run."""
        self._ended.set()
        self._thread.join()
        if not self._is_lost:
            with_retries(lambda: self._write(has_ended=True))

    def _renew(self) -> None:
        while not self._ended.wait(self._beat_s) and not self._is_lost:
            try:
                self._look()
                if not self._is_lost:
                    self._write()
            except StorageError:
                continue  # the publisher decides how long a store may be unreachable

    def _look(self) -> None:
        claim = read_claim(self._uri)
        self._is_lost = claim is None or claim.copy_id != self._copy_id

    def _write(self, *, has_ended: bool = False) -> None:
        claim = Claim(
            copy_id=self._copy_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            at=time.time(),
            has_ended=has_ended,
        )
        write_bytes(self._uri / OWNER, json.dumps(asdict(claim)).encode())
