"""A run at a URI while this process trains it: reached, claimed, copied here, and sent on.

Runs as the command line names them: a directory of this machine, or a URI.
"""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path
from typing import TextIO

from cast_ray.errors import CastRayError, RunDirectoryError, StorageError
from cast_ray.files import refusals_named
from cast_ray.runs.object_store import find_file, list_files
from cast_ray.runs.remote_directories import localized
from cast_ray.runs.remote_lock import RunOwner, check_free, read_claim
from cast_ray.runs.remote_run import OWNER, download_run, new_copy, read_origin, working_copy
from cast_ray.runs.remote_sync import RunPublisher
from cast_ray.runs.uris import child_uri, is_uri
from cast_ray.timeouts import answer_within

logger = logging.getLogger(__name__)

REACH_S = 30.0
"""For a first answer of a store."""


class RunAtUri:
    """The claim of a run, its working copy, and the thread that sends it."""

    def __init__(self, uri: str, *, resume: bool) -> None:
        """Make the working copy ready: empty for a new run, as the URI is for an old one.

        A copy that wrote to the run last may have what the URI lacks, and is gone on with as it is.

        Raises:
            StorageError: the store cannot be reached.
            RunDirectoryError: another process trains there; or there is something, and nothing is
                to be resumed, or the other way round.
        """
        self.uri, self.path = uri, working_copy(uri)
        self._publisher: RunPublisher | None = None
        self._lock = _locked(self.path, uri)
        try:
            self._prepare(resume=resume)
        except BaseException:
            self._lock.close()
            raise

    def _prepare(self, *, resume: bool) -> None:
        uri = self.uri
        claim, origin = read_claim(uri), read_origin(self.path)
        check_free(uri, claim, copy_id=origin and origin.copy_id)
        is_newest = origin is not None and claim is not None and claim.copy_id == origin.copy_id
        is_newest = is_newest and (self.path / "config.yaml").is_file()
        there = {file.name: file.num_bytes for file in list_files(uri) if file.name != OWNER}
        if not resume and there:
            raise RunDirectoryError(
                f"{uri} is not empty; give another run_dir=URI, or --resume to go on with it"
            )
        if resume and not is_newest and "config.yaml" not in there:
            raise RunDirectoryError(f"{uri} is not a run directory: it has no config.yaml")
        if origin is None or not (resume and is_newest):
            origin = new_copy(uri)
        self._there, self._is_brought = there, resume and not is_newest
        self._owner = RunOwner(uri, copy_id=origin.copy_id)
        if self._is_brought:
            download_run(uri, self.path)

    def begin_sending(self) -> None:
        """Send what is in the working copy from now on.

        Raises:
            StorageError: the store was away for too long; so do the others.
        """
        self._publisher = RunPublisher(
            self.path,
            self.uri,
            may_write=self._owner.check,
            there=self._there,
            is_copy=self._is_brought,
        )
        self._publisher.send_all()

    def send(self) -> None:
        """Have everything sent that is there now; do not wait."""
        if self._publisher:
            self._publisher.send()

    def send_all(self) -> None:
        """Return when everything that is there now is at the URI."""
        if self._publisher:
            self._publisher.send_all()

    def close(self, *, failure: BaseException | None) -> None:
        """Send what is left and give the run up.

        Args:
            failure: what ends the run; a store that is away is then only a warning more.
        """
        try:
            try:
                if not isinstance(failure, StorageError):
                    self.send_all()
            finally:
                if self._publisher:
                    self._publisher.close()
                self._owner.release()
        except CastRayError as error:
            if failure is None:
                raise
            logger.warning("%s", error)
        finally:
            self._lock.close()


def config_at_uri(uri: str) -> Path | None:
    """Return a local copy of a run's configuration; None where there is none.

    Raises:
        StorageError: the store cannot be reached.
    """
    place = child_uri(uri, "config.yaml")

    def bring() -> Path | None:
        return localized(place) if find_file(place) else None

    try:
        found = answer_within(REACH_S, bring, name="read configuration")
    except TimeoutError:
        raise StorageError(
            f"{uri} did not answer within {REACH_S:g} s: check the network and try again"
        ) from None
    here = working_copy(uri) / "config.yaml"
    return found or (here if here.is_file() else None)


def _locked(path: Path, uri: str) -> TextIO:
    """Return this host's lock of a working copy, which ends with this process at the latest."""
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_name(f"{path.name}.lock"), "w")  # noqa: SIM115  held while it trains
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise RunDirectoryError(
            f"another process on this host trains in {uri}: wait for its end, or give another "
            "run_dir"
        ) from None
    return lock


def stored_config(run_dir: str) -> Path | None:
    """Return the configuration that a run was started with; None where there is no run."""
    if is_uri(run_dir):
        return config_at_uri(run_dir)
    file = Path(run_dir) / "config.yaml"
    return file if file.is_file() else None


def local_run_dir(run_dir: str) -> Path:
    """Return where a run's driver writes."""
    if is_uri(run_dir):
        from cast_ray.runs.remote_run import working_copy

        return working_copy(run_dir)
    return Path(run_dir)


def readable(run: str, *, with_weights: bool = False) -> Path:
    """Return a run directory, copied to this host if it is at a URI."""
    if is_uri(run):
        from cast_ray.runs.remote_run import readable_copy

        return readable_copy(run, with_weights=with_weights)
    return Path(run)
