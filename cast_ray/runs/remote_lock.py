"""Who trains at a URI: one process at a time, by an object that it writes anew while it lives.

A store has no lock that ends with its process. The owner writes ``owner.json`` every 20 s; one that
has been silent for 90 s counts as gone. Hosts whose clocks differ by more than that would not see
it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass

from cast_ray.errors import RunDirectoryError, StorageError
from cast_ray.runs.object_store import find_file, read_bytes, write_bytes
from cast_ray.runs.remote_directories import with_retries
from cast_ray.runs.remote_run import OWNER
from cast_ray.runs.uris import child_uri

BEAT_S = 20.0
STALE_S = 90.0
_SETTLE_S = 1.0
"""Of two that claim a run at the same time, the one whose claim stands after this has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Content of ``owner.json``."""

    copy_id: str
    """Of the working copy that wrote to the run last."""
    host: str
    pid: int
    at: float
    """Of its last sign of life, as ``time.time``."""
    has_ended: bool = False


def read_claim(uri: str) -> Claim | None:
    """Return who has a run, or had it last; None = nobody ever.

    Raises:
        RunDirectoryError: the object is damaged.
    """
    place = child_uri(uri, OWNER)
    if find_file(place) is None:
        return None
    try:
        return Claim(**json.loads(read_bytes(place)))
    except (ValueError, TypeError):
        raise RunDirectoryError(
            f"{place} is damaged: delete it if nobody trains in this run"
        ) from None


def check_free(uri: str, claim: Claim | None, *, copy_id: str | None) -> None:
    """Raise RunDirectoryError if another working copy's process trains at a URI.

    Args:
        uri: of the run.
        claim: what is written there.
        copy_id: of this host's working copy, which a lock of its own keeps to one process.
    """
    if claim is None or claim.has_ended or claim.copy_id == copy_id:
        return
    silent_s = time.time() - claim.at
    if silent_s < STALE_S:
        raise RunDirectoryError(
            f"a process on {claim.host} trains in {uri} (last sign of life {silent_s:.0f} s ago): "
            f"wait for its end, or until it has been silent for {STALE_S:.0f} s if it was killed, "
            "or give another run_dir"
        )


class RunOwner:
    """This process's claim of a run, which it renews until ``release``."""

    def __init__(self, uri: str, *, copy_id: str, beat_s: float = BEAT_S) -> None:
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
        """Raise RunDirectoryError if somebody else has taken the run since."""
        if self._is_lost:
            raise RunDirectoryError(
                f"{self._uri} was taken over by another process, for which this one was silent too "
                "long: it stops here and writes nothing more there"
            )

    def release(self) -> None:
        """Say that nobody trains here any more."""
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
                continue  # the publisher judges how long a store may be away

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
        write_bytes(child_uri(self._uri, OWNER), json.dumps(asdict(claim)).encode())
