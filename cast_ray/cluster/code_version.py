"""Which code this process runs: the version's number, and the text itself.

Numbers alone do not tell two checkouts of one version apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("cast_ray", "serve", "solver_actors")


def code_version() -> str:
    """Return the installed version and the first digits of a checksum over the packages' text."""
    places = {package: package_dir(package) for package in PACKAGES}
    return f"{_installed('cast-ray')} (code {code_checksum(places)[:8]})"


def code_checksum(places: Mapping[str, Path]) -> str:
    """Return a checksum over names and text of all modules of packages, by where they lie."""
    digest = hashlib.sha256()
    for package, place in sorted(places.items()):
        for module in sorted(place.rglob("*.py")):
            digest.update(f"{package}/{module.relative_to(place)}\0".encode())
            digest.update(module.read_bytes())
    return digest.hexdigest()


def ray_version() -> str:
    """Return the version of the Ray that is installed here, without importing it."""
    return _installed("ray")


def package_dir(package: str) -> Path:
    """Return where one of ``PACKAGES`` would be imported from."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
