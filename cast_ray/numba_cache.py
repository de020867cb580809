"""Where numba keeps compiled kernels: a folder named by the text of all of them.

numba itself notices a change in a kernel's own file only. A kernel that calls another module's, or
has its constants compiled in, would go on with the old ones after an edit or an update, unnoticed.
"""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

ROOMS = (
    "cast_ray.games",
    "cast_ray.envs.gym",
    "solver_actors",
)
"""The packages with kernels in them, or with what kernels are made of."""


def user_cache() -> Path:
    """Return where this user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def kernel_cache_dir() -> Path:
    """Return the folder for the kernels as they are written now, in the user's own cache."""
    digest = hashlib.sha256()
    for room in ROOMS:
        spec = find_spec(room)
        assert spec is not None and spec.origin is not None
        for module in sorted(Path(spec.origin).parent.rglob("*.py")):
            digest.update(module.read_bytes())
    return user_cache() / "cast_ray" / f"kernels-{digest.hexdigest()[:16]}"


def use_kernel_cache() -> None:
    """Tell numba of that folder, unless NUMBA_CACHE_DIR names another; before numba is imported."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(kernel_cache_dir()))
