"""A run at a URI while this process trains it: reached, claimed, copied here, and uploaded."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

from cast_ray.errors import CastRayError, RunDirectoryError, StorageError
from cast_ray.files import locked
from cast_ray.runs.object_store import list_files
from cast_ray.runs.remote_directories import has_file, localized
from cast_ray.runs.remote_lock import RunOwner, check_free, read_claim
from cast_ray.runs.remote_run import OWNER, download_run, new_copy, read_origin, working_copy
from cast_ray.runs.remote_sync import RunPublisher
from cast_ray.runs.uris import PathOrUri, Uri
from cast_ray.timeouts import answer_within

logger = logging.getLogger(__name__)

REACH_S = 30.0
"""For the first answer of a store."""


class RunAtUri:
    """The claim to a run, its working copy, and the thread that uploads it."""

    def __init__(self, uri: Uri, *, resume: bool) -> None:
        """Prepare the working copy: empty for a new run, a download for an old one.

        A copy that was the last to write to the run may have files that the URI lacks; it is
        resumed as it is.

        Raises:
            StorageError: the store cannot be reached.
            RunDirectoryError: another process trains there; or the URI is not empty without
                ``resume``, or has no run with it.
        """
        self.uri, self.path = uri, working_copy(uri)
        self.publisher: RunPublisher | None = None
        """None until ``begin_sending``."""
        lock = locked(
            self.path.with_name(f"{self.path.name}.lock"),
            f"another process on this host trains in {uri}: wait until it ends, or give another "
            "run_dir",
        )
        with ExitStack() as held:
            held.enter_context(lock)
            self._prepare(resume=resume)
            self._held = held.pop_all()

    def _prepare(self, *, resume: bool) -> None:
        uri = self.uri
        claim, origin = read_claim(uri), read_origin(self.path)
        check_free(uri, claim, copy_id=origin and origin.copy_id)
        is_newest = origin is not None and claim is not None and claim.copy_id == origin.copy_id
        is_newest = is_newest and (self.path / "config.yaml").is_file()
        there = {file.name: file.num_bytes for file in list_files(uri) if file.name != OWNER}
        if not resume and there:
            raise RunDirectoryError(
                f"{uri} is not empty; give another run_dir=URI, or --resume to continue it"
            )
        if resume and not is_newest and "config.yaml" not in there:
            raise RunDirectoryError(f"{uri} is not a run directory: it has no config.yaml")
        if origin is None or not (resume and is_newest):
            origin = new_copy(uri)
        self._there, self._is_downloaded = there, resume and not is_newest
        self._owner = RunOwner(uri, copy_id=origin.copy_id)
        if self._is_downloaded:
            download_run(uri, self.path)

    def begin_sending(self) -> None:
        """Upload what is in the working copy, now and from now on.

        Raises:
            StorageError: the store was unreachable for too long.
        """
        self.publisher = RunPublisher(
            self.path,
            self.uri,
            may_write=self._owner.check,
            there=self._there,
            is_copy=self._is_downloaded,
        )
        self.publisher.send_all()

    def close(self, *, failure: BaseException | None) -> None:
        """Upload what is left and release the run.

        Args:
            failure: what ended the run; then an unreachable store is only logged.
        """
        try:
            try:
                if self.publisher and not isinstance(failure, StorageError):
                    self.publisher.send_all()
            finally:
                if self.publisher:
                    self.publisher.close()
                self._owner.release()
        except CastRayError as error:
            if failure is None:
                raise
            logger.warning("%s", error)
        finally:
            self._held.close()


def stored_config(run: PathOrUri) -> Path | None:
    """Return a local copy of the configuration that a run was started with; None without a run.

    Raises:
        StorageError: the store cannot be reached.
    """
    file = run / "config.yaml"
    here = working_copy(run) / "config.yaml"
    if isinstance(file, Uri):

        def download() -> Path | None:
            return localized(file) if has_file(run, "config.yaml") else None

        try:
            found = answer_within(REACH_S, download, name="read configuration")
        except TimeoutError:
            raise StorageError(
                f"{run} did not answer within {REACH_S:g} s: check the network and try again"
            ) from None
        if found is not None:
            return found
    return here if here.is_file() else None
