"""What every process of the tests must agree on before Ray is imported for the first time."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from cast_ray.numba_cache import use_kernel_cache
from cast_ray.timeouts import use_start_limits

# `cast-ray` itself sets the same: one ninja for all (another one compiles DeepSpeed's operator
# anew), and what Ray reads once, at import.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
use_kernel_cache()
use_start_limits()
# No test is timed: the machine may have other work.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# Who starts the tests in the background has Ctrl-C ignored in all that they start; some send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    """Compute with one thread: on a busy machine two wait for each other, 100 times longer."""
    if find_spec("torch"):  # tests/versions.py has only the core
        import torch  # not above: what is set there must be set before anything else is imported

        torch.set_num_threads(1)
