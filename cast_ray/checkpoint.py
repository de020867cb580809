"""Directories that are either whole or absent: written aside, marked, then renamed.

Checkpoints and exported models go through here; what is in them is their writer's business. All
ranks of a job must see the same file system.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from cast_ray.errors import RunDirectoryError
from cast_ray.files import refusals_named

MARKER = "complete.json"
"""Names every file with its size in bytes; written last: where it stands, the rest does too."""


def partial_path(directory: Path) -> Path:
    """Return where ``directory`` is written before it is published."""
    return directory.with_name(f".{directory.name}.partial")


def make_partial(directory: Path) -> Path:
    """Make ``partial_path(directory)``, empty whatever an earlier attempt left there."""
    partial = partial_path(directory)
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    return partial


def publish(partial: Path, directory: Path) -> None:
    """Mark a partial directory as whole and rename it; an older one of that name is replaced."""
    files = sorted(path for path in partial.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(partial)): path.stat().st_size for path in files}
    marker = partial / MARKER
    marker.write_text(json.dumps({"files": sizes}, indent=1))
    for path in [*files, marker, partial]:
        _fsync(path)
    replaced = directory.with_name(f".{directory.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if directory.exists():
        directory.rename(replaced)
    partial.rename(directory)
    _fsync(directory.parent)
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def save_refusals_named(directory: Path) -> Iterator[None]:
    """Say in one sentence that a directory cannot be written, also where a library found so.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    with refusals_named(directory):
        try:
            yield
        except SafetensorError as error:
            raise OSError(str(error)) from error
        except RuntimeError as error:
            # PyTorch's writer of archives tells where in itself it stopped, not why.
            if "inline_container" not in str(error):
                raise
            raise OSError("a file could not be written to its end") from error


def check_whole(directory: Path) -> None:
    """Raise unless a directory was published and all its files still have their sizes.

    Raises:
        RunDirectoryError: it is missing, half-written or cut short.
    """
    marker = directory / MARKER
    if not marker.is_file():
        raise RunDirectoryError(
            f"{directory} is no complete checkpoint ({MARKER} is missing): use an older one"
        )
    for name, size in json.loads(marker.read_text())["files"].items():
        path = directory / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            raise RunDirectoryError(
                f"{path} should have {size} bytes but has {found}: use an older checkpoint"
            )


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
