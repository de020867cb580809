"""The files that travel with a job: what its run needs, gathered in a folder of its own.

Nodes have cast_ray in their environment, so that a configuration file is enough; the code of this
checkout goes along on demand. Gathered, not filtered: what nobody named cannot slip in.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from cast_ray.errors import EnvironmentSetupError
from cast_ray.files import refusals_named
from cast_ray.jobs.code_version import PACKAGES, package_dir

_MADE_ANEW = ("__pycache__", "*.pyc", "*.nbi", "*.nbc")
"""Caches: numba's and Python's are bound to a path and a machine."""
_MOST_BYTES = 50 * 2**20
"""Ray refuses 100 MiB; our packages have 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPackage:
    """A folder that becomes the job's working directory."""

    folder: Path
    num_files: int
    num_bytes: int

    def __str__(self) -> str:
        """Return how much travels, in words."""
        if not self.num_files:
            return "nothing but the command"
        files = "1 file" if self.num_files == 1 else f"{self.num_files} files"
        return f"{files}, {-(-self.num_bytes // 1024)} KiB"


def pack_job(folder: Path, *, config_file: Path | None, with_code: bool) -> JobPackage:
    """Gather in an empty folder what travels with a job.

    Args:
        folder: empty.
        config_file: goes to ``sent_config``, wherever it lies here.
        with_code: the packages too, as this process would import them.

    Raises:
        EnvironmentSetupError: too much for one upload, or the disk refuses.
    """
    with refusals_named(folder):
        if config_file is not None:
            target = folder / sent_config(config_file)
            target.parent.mkdir()
            shutil.copyfile(config_file, target)
        for package in PACKAGES if with_code else ():
            copy_package(package_dir(package), folder / package)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > _MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise EnvironmentSetupError(
            f"{total / 2**20:.0f} MiB would travel with the job, {_MOST_BYTES / 2**20:.0f} at "
            f"most: move {largest.relative_to(folder)} ({sizes[largest] / 2**20:.0f} MiB) out of "
            "the way"
        )
    return JobPackage(folder=folder, num_files=len(sizes), num_bytes=total)


def copy_package(place: Path, target: Path) -> None:
    """Copy a package without what each machine makes anew for itself."""
    shutil.copytree(place, target, ignore=shutil.ignore_patterns(*_MADE_ANEW))


def sent_config(config_file: Path) -> Path:
    """Return where in the job's working directory a configuration file lies."""
    return Path("configs") / config_file.name
