"""Where numba caches compiled kernels: a folder named by a checksum of all their sources.

numba itself only notices changes in a kernel's own file. A kernel that calls another module's
kernels, or compiles its constants in, would silently keep using the old ones after an edit.
"""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("cast_ray.games", "cast_ray.envs.gym", "solver_actors")
"""Packages with kernels, or with code that kernels use."""


def user_cache() -> Path:
    """Return this user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def kernel_cache_dir() -> Path:
    """Return the folder, in the user's cache, for kernels of the current sources."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        for module in sorted(Path(spec.origin).parent.rglob("*.py")):
            digest.update(module.read_bytes())
    return user_cache() / "cast_ray" / f"kernels-{digest.hexdigest()[:16]}"


def use_kernel_cache() -> None:
    """Make numba use that folder unless NUMBA_CACHE_DIR is set; call before numba is imported."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(kernel_cache_dir()))
