"""Which code this process runs: version number and a checksum of the source.

The number alone cannot distinguish two checkouts of the same version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("cast_ray", "serve", "solver_actors")


def code_version() -> str:
    """Return the installed version and the first digits of the packages' checksum."""
    folders = {package: package_dir(package) for package in PACKAGES}
    return f"{_installed('cast-ray')} (code {code_checksum(folders)[:8]})"


def code_checksum(folders: Mapping[str, Path]) -> str:
    """Return a checksum over names and source of all modules of packages in these folders."""
    digest = hashlib.sha256()
    for package, folder in sorted(folders.items()):
        for module in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{module.relative_to(folder)}\0".encode())
            digest.update(module.read_bytes())
    return digest.hexdigest()


def ray_version() -> str:
    """Return the installed version of Ray without importing it."""
    return _installed("ray")


def package_dir(package: str) -> Path:
    """Return the folder that one of ``PACKAGES`` would be imported from."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
