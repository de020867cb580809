"""A file that is either whole or absent: written aside, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cast_ray.errors import EnvironmentSetupError


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yield a place beside ``path`` to write to; it takes that name if the block succeeds.

    A reader meets the old file or the whole new one; after an error the old one is still there.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with written_in_place(path):
        try:
            yield aside
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def written_in_place(path: Path) -> Iterator[Path]:
    """Yield ``path`` itself: for a terminal, a pipe or a link, which no rename may replace.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    try:
        yield path
    except OSError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be written ({error.strerror or error}): free some space or give "
            "another place"
        ) from None
