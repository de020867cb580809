"""The Serve applications of a run: their names, and what Serve says of them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import ray
from ray import serve as ray_serve
from ray.exceptions import ActorAlreadyExistsError, GetTimeoutError, RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatusOverview, ServeStatus

from cast_ray.errors import RemoteTimeout
from cast_ray.timeouts import START_TIMEOUT_S, answer_within, slow_start

logger = logging.getLogger(__name__)

_STATUS_TIMEOUT_S = 30.0
_RETRY_S = 0.2


def start_serve(http_options: dict[str, str | int] | None = None) -> None:
    """Start Serve, unless it runs.

    Runs that begin at the same moment may all find none; they share the first one's controller.

    Args:
        http_options: where its proxies listen; None = it has no proxies.

    Raises:
        RemoteTimeout: it does not start in time.
    """
    if ray.util.get_current_placement_group() is None:
        return _start_serve(http_options)
    # A trial of Ray Tune: what it starts would belong to its own reservation, and end with it.
    start: Any = ray.remote(num_cpus=0, scheduling_strategy="DEFAULT")(_start_serve)
    try:
        return ray.get(start.remote(http_options), timeout=2 * START_TIMEOUT_S)
    except GetTimeoutError as error:
        what = f"the task that starts Serve did not end within {2 * START_TIMEOUT_S:g} s"
        raise RemoteTimeout(slow_start(what)) from error


def _start_serve(http_options: dict[str, str | int] | None) -> None:
    proxies = None if http_options else "Disabled"
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            ray_serve.start(proxy_location=proxies, http_options=http_options)
            return
        # Another run is starting it; or its proxies take longer than Serve's own minute, and the
        # next call finds the controller that starts them.
        except (ActorAlreadyExistsError, TimeoutError) as error:
            if time.monotonic() > deadline:
                what = f"Serve did not start within {START_TIMEOUT_S:g} s ({error})"
                raise RemoteTimeout(slow_start(what)) from error
            time.sleep(_RETRY_S)


def serve_status() -> ServeStatus:
    """Return Serve's status of all applications; Serve's own call may wait for ever.

    Raises:
        RemoteTimeout: Serve's controller does not answer.
    """
    try:
        return answer_within(_STATUS_TIMEOUT_S, ray_serve.status, name="serve_status")
    except TimeoutError as error:
        raise RemoteTimeout(
            f"Serve's controller did not answer within {_STATUS_TIMEOUT_S:g} s; see its log"
        ) from error


def engine_names(run_id: str, num_engines: int) -> list[str]:
    """Return the names of a run's applications."""
    return [f"{run_id}-policy-{index}" for index in range(num_engines)]


def engines_up(names: Sequence[str]) -> set[str]:
    """Return the applications that have a replica which takes requests."""
    applications = serve_status().applications
    return {
        name
        for name in names
        if name in applications
        and any(
            count
            for status in applications[name].deployments.values()
            for state, count in status.replica_states.items()
            if state == "RUNNING"
        )
    }


def failed_starts(names: Sequence[str]) -> dict[str, str]:
    """Return the applications that Serve no longer tries to start, and why."""
    applications = serve_status().applications
    return {
        name: reason_of(applications[name])
        for name in names
        if name in applications and applications[name].status == "DEPLOY_FAILED"
    }


def reason_of(application: ApplicationStatusOverview) -> str:
    """Return why an application failed, as one line of Serve's message.

    The message is a traceback; its line with an exception of ours is what the replica raised.
    """
    messages = [status.message for status in application.deployments.values()]
    text = " ".join(filter(None, messages)) or application.message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("cast_ray.errors.")]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    line = (ours or errors or lines or ["no reason is known"])[-1]
    return re.sub(r"^cast_ray\.errors\.\w+: ", "", line)


def remove_engines(names: Sequence[str]) -> None:
    """Delete applications; one that does not end in time is left to Serve."""
    for name in names:
        try:
            answer_within(START_TIMEOUT_S, partial(ray_serve.delete, name), name="serve_delete")
        except (TimeoutError, RayError, RayServeException) as error:
            # Not raised: it would hide why the engines are removed, and nothing waits for them.
            logger.warning("Serve has not ended %s: %s.", name, error)


def remove_left_over(run_ids: Sequence[str]) -> None:
    """Delete the engines that earlier drivers of a run left behind; Serve outlives them."""
    prefixes = tuple(f"{run_id}-policy-" for run_id in run_ids)
    if not prefixes:
        return
    start_serve()
    for name in serve_status().applications:
        if name.startswith(prefixes):
            logger.warning("Engine %s was left behind by a driver that died; it is removed.", name)
            remove_engines([name])
