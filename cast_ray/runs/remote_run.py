"""A run directory at a URI, as the driver sees it: a working copy here, weights at the URI alone.

The driver writes small files into the working copy, which ``remote_sync`` sends. Models and
checkpoints are written by learner ranks, anywhere in the cluster, which send them by themselves.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cast_ray.errors import RunDirectoryError
from cast_ray.files import written_aside
from cast_ray.runs.directories import MARKER
from cast_ray.runs.object_store import StoredFile, list_files
from cast_ray.runs.remote_directories import (
    PathOrUri,
    cache_root,
    check_whole_at,
    delete_directory,
    download_files,
    has_file,
    is_whole,
    local_name,
)
from cast_ray.runs.run_directory import CHECKPOINT_NAMES, ResumePoint, RunDirectory, no_checkpoint
from cast_ray.runs.uris import child_uri, is_uri

WEIGHTS = frozenset({"initial_model", "start_model", "model", "checkpoints"})
"""Folders that are written at the URI alone."""
OWNER = "owner.json"
"""Who trains there (``remote_lock``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a working copy is a copy of; kept beside it."""

    uri: str
    copy_id: str
    """Of this copy: a run knows by it which copy wrote to it last."""


class StoredRunDirectory(RunDirectory):
    """The working copy of a run at a URI; ``place`` says where weights lie."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        origin = read_origin(path)
        assert origin is not None, "made by new_copy"
        self.uri = origin.uri

    @property
    def address(self) -> str:
        """The run's URI."""
        return self.uri

    def place(self, path: Path) -> PathOrUri:
        """Return the URI of a path of this directory."""
        return child_uri(self.uri, *path.relative_to(self.path).parts)

    def resume_point(self) -> ResumePoint:
        """Return the newest checkpoint that is whole at the URI.

        Its bytes are proved where a rank brings them.

        Raises:
            RunDirectoryError: there are checkpoints, and all are damaged.
        """
        damaged = []
        for step, uri in sorted(self._stored_checkpoints().items(), reverse=True):
            if not is_whole(uri):  # cut off: no rename hides what is half-written
                continue
            try:
                check_whole_at(uri)
            except RunDirectoryError as error:
                damaged.append(f"step {step}'s checkpoint is damaged: {error}")
            else:
                return ResumePoint(step=step, checkpoint=uri, damaged=tuple(damaged))
        return no_checkpoint(self.uri, damaged)

    def drop_old_checkpoints(self, step: int, *, kept: int) -> None:
        """Keep the newest ``kept`` checkpoints up to that of ``step``; everything else goes."""
        found = self._stored_checkpoints()
        keep = sorted(number for number in found if number <= step)[-kept:]
        for number, uri in found.items():
            if number not in keep:
                delete_directory(uri)

    def _stored_checkpoints(self) -> dict[int, str]:
        """Return everything under a checkpoint's name, half-written ones too."""
        folder = child_uri(self.uri, "checkpoints")
        names = {file.name.partition("/")[0] for file in list_files(folder)}
        matches = [match for name in names if (match := CHECKPOINT_NAMES.fullmatch(name))]
        return {int(match["step"]): child_uri(folder, match[0]) for match in matches}


def working_copy(uri: str) -> Path:
    """Return where this host keeps its copy of a run that it trains."""
    return cache_root().absolute() / "runs" / local_name(uri)


def read_origin(path: Path) -> Origin | None:
    """Return what a working copy is of; None where there is no copy."""
    file = _origin_file(path)
    return Origin(**json.loads(file.read_text())) if file.is_file() else None


def new_copy(uri: str) -> Origin:
    """Make an empty working copy; what was there before is moved aside, one such is kept."""
    path = working_copy(uri)
    if path.exists():
        aside = path.with_name(f"{path.name}.replaced")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    origin = Origin(uri=uri, copy_id=uuid.uuid4().hex)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(_origin_file(path)) as file:
        file.write_text(json.dumps({"uri": origin.uri, "copy_id": origin.copy_id}))
    return origin


def download_run(uri: str, path: Path) -> None:
    """Bring all of a run but weights and TensorBoard's events, which a new driver writes anew.

    Raises:
        StorageError: the store cannot be reached.
    """
    skipped = WEIGHTS | {"tensorboard", OWNER}
    download_files([f for f in list_files(uri) if _room(f) not in skipped], uri, path)


def is_run(place: PathOrUri) -> bool:
    """Return whether a place is a run directory: it has a configuration."""
    return has_file(place, "config.yaml")


def readable_copy(
    place: PathOrUri, *, with_weights: bool = False, rooms: Collection[str] = ()
) -> Path:
    """Return a local copy of a run, to be read; a local path is returned as it is.

    Args:
        place: a run directory, or its URI.
        with_weights: bring its models and checkpoints too.
        rooms: its folders to bring, beside the files at its top; empty = all.

    Raises:
        RunDirectoryError: there is no run at the URI.
        StorageError: the store cannot be reached.
    """
    if not is_uri(place):
        return Path(place)
    uri = str(place)
    files = [file for file in list_files(uri) if file.name != OWNER]
    if not any(file.name == "config.yaml" for file in files):
        raise RunDirectoryError(f"{uri} is not a run directory: it has no config.yaml")
    if rooms:
        files = [file for file in files if "/" not in file.name or _room(file) in rooms]
    whole = {_marked_folder(file) for file in files if file.name.endswith(f"/{MARKER}")}
    wanted = [
        file
        for file in files
        if _room(file) not in WEIGHTS or (with_weights and _marked_folder(file) in whole)
    ]
    path = cache_root().absolute() / "read" / local_name(uri)
    shutil.rmtree(path, ignore_errors=True)
    download_files(wanted, uri, path)
    for folder in ("trajectories/groups", "evaluations", "puzzles", "checkpoints"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    return path


def _room(file: StoredFile) -> str:
    return file.name.partition("/")[0]


def _marked_folder(file: StoredFile) -> str:
    """Return the folder with the marker that a file of weights belongs to."""
    num_parts = 2 if _room(file) == "checkpoints" else 1
    return "/".join(file.name.split("/")[:num_parts])


def _origin_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
