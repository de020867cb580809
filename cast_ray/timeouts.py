"""Time limits: for calls that have none, and for what Ray, Serve and vLLM start.

Their own limits for a start suit an idle machine; with other work on two cores (load 7 and more) a
local Ray takes a minute. One limit cannot be set: Ray's raylet exits when its agents take more than
15 seconds (ray-project/ray#65983), so ``cast_ray.cluster.session`` starts Ray again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
START_TIMEOUT_S = 120.0
"""For a start that has no key of its own in the configuration."""
_START_LIMITS = {
    "RAY_gcs_server_port_wait_time_s": "120",  # Ray: 30
    "RAY_gcs_rpc_server_connect_timeout_s": "60",  # Ray: 5
    "RAY_raylet_client_num_connect_attempts": "60",  # Ray: 10, one a second
    "RAY_agent_register_timeout_ms": "120000",  # Ray: 30,000
    # Ray: 30. A raylet that has ended itself is waited for as long: not longer than it may need.
    "RAY_raylet_start_wait_time_s": "75",
    "RAY_worker_register_timeout_seconds": "300",  # Ray: 60
    # Ray: 15, which lets other programs starve a run: with six busy processes on two cores it made
    # no progress for ten minutes. With 0 it gets its share.
    "RAY_worker_niceness": "0",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "120",  # Ray: 60
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # Serve: 5, then it starts another proxy
    "VLLM_ENGINE_READY_TIMEOUT_S": "1800",  # vLLM: 600; engine.start_timeout_s is ours
}


def use_start_limits() -> None:
    """Set the limits in this process and those that it starts, unless the environment has others.

    To be called before Ray is started; the processes of a running cluster keep their own.
    """
    for name, value in _START_LIMITS.items():
        os.environ.setdefault(name, value)


def slow_start(what: str) -> str:
    """Return the message for a start that failed: the machine's state, and what to do.

    Args:
        what: happened, as the beginning of the sentence.
    """
    folders = [path for path in (Path(tempfile.gettempdir()), Path("/dev/shm")) if path.is_dir()]
    free = [f"{psutil.virtual_memory().available / 2**30:.1f} GiB of memory"]
    free += [f"{shutil.disk_usage(path).free / 2**30:.1f} GiB in {path}" for path in folders]
    return (
        f"{what}: this machine has a load average of {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores and {', '.join(free)} free; stop other programs or free what is "
        "short, then try again"
    )


def answer_within(limit_s: float, call: Callable[[], T], *, name: str) -> T:
    """Return what a call returns, or raise what it raises, if it ends in time.

    Args:
        limit_s: seconds to wait.
        call: runs on a separate thread.
        name: of that thread.

    Raises:
        TimeoutError: it did not end in time; the thread is abandoned and ends with this process.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised below
            answer.set_exception(error)

    threading.Thread(target=ask, name=name, daemon=True).start()
    return answer.result(timeout=limit_s)
