"""Checks with a name: each prints lines with device, figure and bound, and none ends the others."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
SKIPPED_ON_CPU = {
    "attention in one kernel": "torch has that kernel for CUDA alone",
    "CUDA graphs": "there are none on CPU",
    "sleep and wake": "vLLM frees the memory of GPUs alone",
    "engine and learner on one GPU": "needs a GPU to share",
}
"""What a CPU cannot run, and why; any other skip is a failure."""

CheckT = TypeVar("CheckT", bound=Callable[[], None])
CHECKS: dict[str, list[Callable[[], None]]] = {}
_failed: list[str] = []
_skipped: list[str] = []


class NotHere(Exception):
    """This check needs what the device does not have."""


def check(part: str) -> Callable[[CheckT], CheckT]:
    """Register a function as a check of a part."""

    def registered(function: CheckT) -> CheckT:
        CHECKS.setdefault(part, []).append(function)
        return function

    return registered


def size(gpu: int, cpu: int) -> int:
    """Return a size for this device."""
    return gpu if ON_GPU else cpu


def device_name() -> str:
    return torch.cuda.get_device_name() if ON_GPU else "CPU"


def report(
    what: str,
    figure: float,
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> None:
    """Print one line; a figure that is not within its bound fails the check."""
    is_right = (at_most is None or figure <= at_most) and (at_least is None or figure >= at_least)
    line = {"what": what, "figure": float(f"{figure:.4g}"), "unit": unit, "device": device_name()}
    line |= {} if at_most is None else {"at_most": at_most}
    line |= {} if at_least is None else {"at_least": at_least}
    print(json.dumps(line | ({} if is_right else {"failed": True})), flush=True)
    if not is_right:
        _failed.append(what)


def needs_gpu(what: str) -> None:
    """End a check that a CPU cannot run; it must be on the list."""
    if not ON_GPU:
        assert what in SKIPPED_ON_CPU, f"{what} is not on the list of what a CPU skips"
        _skipped.append(what)
        raise NotHere(what)


def seconds(work: Callable[[], object], *, rounds: int = 3) -> float:
    """Return the shortest time that a piece of work takes, after one run to warm up."""
    found = []
    for _ in range(rounds + 1):
        wait()
        started = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def wait() -> None:
    """Return when the GPU has done what it was given."""
    if ON_GPU:
        torch.cuda.synchronize()


def peak_gib() -> float:
    """Return the most memory of the GPU that torch has had since ``reset_peak``, in GiB."""
    return torch.cuda.max_memory_allocated() / 2**30 if ON_GPU else 0.0


def reset_peak() -> None:
    if ON_GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def run(parts: list[str]) -> bool:
    """Run all checks of some parts; return whether none failed."""
    for part in parts:
        for function in CHECKS[part]:
            started = time.perf_counter()
            try:
                function()
            except NotHere:
                continue
            except Exception:  # one that fails must not cost the figures of the others
                traceback.print_exc()
                _failed.append(function.__name__)
            took = time.perf_counter() - started
            print(f"# {part}: {function.__name__} took {took:.1f} s", flush=True)
    summary = {"device": device_name(), "torch": torch.__version__, "parts": parts}
    print(json.dumps(summary | {"failed": _failed, "skipped": _skipped}), flush=True)
    return not _failed
