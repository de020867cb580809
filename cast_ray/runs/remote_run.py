"""A run directory at a URI, as the driver sees it: a working copy here, weights only at the URI.

The driver writes small files into the working copy, and ``remote_sync`` uploads them. Models and
checkpoints are written by learner ranks, anywhere in the cluster, which upload them themselves.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from cast_ray.errors import RunDirectoryError
from cast_ray.files import read_record, write_text
from cast_ray.runs.directories import MARKER
from cast_ray.runs.object_store import StoredFile, list_files
from cast_ray.runs.remote_directories import (
    cache_root,
    check_whole_at,
    delete_directory,
    download_files,
    has_file,
    is_whole,
    local_name,
)
from cast_ray.runs.run_directory import CHECKPOINT_NAMES, RunDirectory
from cast_ray.runs.uris import PathOrUri, Uri

WEIGHTS = frozenset({"initial_model", "start_model", "model", "checkpoints"})
"""Folders that are written only at the URI."""
OWNER = "owner.json"
"""Who trains there (``remote_lock``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a working copy is a copy of; stored next to it."""

    uri: str
    copy_id: str
    """Identifies this copy: a run records which copy wrote to it last."""


class StoredRunDirectory(RunDirectory):
    """The working copy of a run at a URI."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        origin = read_origin(path)
        assert origin is not None, "made by new_copy"
        self.uri = Uri(origin.uri)

    @property
    def address(self) -> PathOrUri:
        """The run's URI."""
        return self.uri

    def location(self, path: Path) -> PathOrUri:
        """Return the URI of a path below this directory."""
        return self.uri / path.relative_to(self.path)

    def drop_old_checkpoints(self, step: int, *, kept: int) -> None:
        """Keep the newest ``kept`` checkpoints up to that of ``step``; delete all others."""
        found = self._stored_checkpoints()
        keep = sorted(number for number in found if number <= step)[-kept:]
        for number, uri in found.items():
            if number not in keep:
                delete_directory(uri)

    def _checkpoints(self) -> dict[int, PathOrUri]:
        """Return the checkpoints with a marker: no rename hides an upload that was cut off."""
        return {step: uri for step, uri in self._stored_checkpoints().items() if is_whole(uri)}

    def _check_whole(self, checkpoint: PathOrUri) -> None:
        """Check names and sizes; the bytes are checked where a rank downloads them."""
        check_whole_at(Uri(checkpoint))

    def _stored_checkpoints(self) -> dict[int, Uri]:
        """Return everything with the name of a checkpoint, including half-written ones."""
        folder = self.uri / "checkpoints"
        names = {_top_folder(file) for file in list_files(folder)}
        matches = [match for name in names if (match := CHECKPOINT_NAMES.fullmatch(name))]
        return {int(match["step"]): folder / match[0] for match in matches}


def working_copy(run: PathOrUri) -> Path:
    """Return where the driver of a run writes: for a URI, this host's copy."""
    return run if isinstance(run, Path) else cache_root() / "runs" / local_name(run)


def read_origin(path: Path) -> Origin | None:
    """Return what a working copy is of; None if there is no copy."""
    file = _origin_file(path)
    return read_record(file, Origin) if file.is_file() else None


def new_copy(uri: Uri) -> Origin:
    """Make an empty working copy; one older copy is kept under another name."""
    path = working_copy(uri)
    if path.exists():
        aside = path.with_name(f"{path.name}.replaced")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    origin = Origin(uri=str(uri), copy_id=uuid.uuid4().hex)
    write_text(_origin_file(path), json.dumps(asdict(origin)))
    return origin


def download_run(uri: Uri, path: Path) -> None:
    """Download all of a run but weights and what trackers only add to.

    Raises:
        StorageError: the store cannot be reached.
    """
    skipped = WEIGHTS | {"tensorboard", "wandb", OWNER}
    download_files(
        [file for file in list_files(uri) if _top_folder(file) not in skipped], uri, path
    )


def is_run(location: PathOrUri) -> bool:
    """Return whether a location is a run directory: it has a configuration."""
    return has_file(location, "config.yaml")


def readable_copy(
    run: PathOrUri, *, with_weights: bool = False, folders: Collection[str] = ()
) -> Path:
    """Return a local copy of a run for reading; a local path is returned as it is.

    Args:
        run: a run directory or its URI.
        with_weights: download its models and checkpoints too.
        folders: the folders to download, in addition to the files at the top; empty = all.

    Raises:
        RunDirectoryError: there is no run at the URI.
        StorageError: the store cannot be reached.
    """
    if isinstance(run, Path):
        return run
    files = [file for file in list_files(run) if file.name != OWNER]
    if not any(file.name == "config.yaml" for file in files):
        raise RunDirectoryError(f"{run} is not a run directory: it has no config.yaml")
    if folders:
        files = [file for file in files if "/" not in file.name or _top_folder(file) in folders]
    whole = {_marked_folder(file) for file in files if file.name.endswith(f"/{MARKER}")}
    wanted = [
        file
        for file in files
        if _top_folder(file) not in WEIGHTS or (with_weights and _marked_folder(file) in whole)
    ]
    # Each selection has its place: another reader's copy may be in use.
    part = "-".join([*sorted(folders), *(["weights"] if with_weights else [])]) or "all"
    path = cache_root() / "read" / part / local_name(run)
    shutil.rmtree(path, ignore_errors=True)
    download_files(wanted, run, path)
    RunDirectory(path).make_folders()
    return path


def _top_folder(file: StoredFile) -> str:
    return file.name.partition("/")[0]


def _marked_folder(file: StoredFile) -> str:
    """Return the folder with the marker that a file of weights belongs to."""
    return "/".join(file.name.split("/")[: 2 if _top_folder(file) == "checkpoints" else 1])


def _origin_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
