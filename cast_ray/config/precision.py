"""Which precision ``dtype=auto`` stands for on this machine."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cast_ray.config.train import TrainConfig

_CPU = Path("/proc/cpuinfo")
_FLAGS = frozenset(("avx512_bf16", "amx_bf16", "bf16"))
"""Of x86 and, the last, of Arm."""


def chosen_dtype(dtype: str, *, gpus: float) -> str:
    """Return ``bfloat16`` or ``float32``.

    Args:
        dtype: one of them, which stays, or ``auto``: bfloat16 where it is computed in hardware.
            Processors without it take up to 90 times as long as for float32.
        gpus: how many GPUs compute; 0 = the CPU, taken to be like this machine's.
    """
    if dtype != "auto":
        return dtype
    return "bfloat16" if gpus or cpu_has_bfloat16() else "float32"


@cache
def cpu_has_bfloat16() -> bool:
    """Return whether this machine's processor multiplies bfloat16 matrices in hardware."""
    try:
        lines = _CPU.read_text().splitlines()
    except OSError:  # no Linux
        return False
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return not _FLAGS.isdisjoint(flags.split())


def precision_note(config: TrainConfig) -> str:
    """Return which parts were told to compute in bfloat16 on a CPU that lacks it; else nothing."""
    parts = {
        "learner.dtype": (config.learner.dtype, config.resources.gpus_per_learner_rank),
        "engine.dtype": (config.engine.dtype, config.resources.gpus_per_engine),
    }
    slow = [key for key, (dtype, gpus) in parts.items() if dtype == "bfloat16" and not gpus]
    if not slow or cpu_has_bfloat16():
        return ""
    keys = " and ".join(f"{key}=bfloat16" for key in slow)
    return f"{keys}: this processor lacks bfloat16 and is far faster in float32, which auto chooses"
