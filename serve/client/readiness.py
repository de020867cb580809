"""Waiting for engines to be ready, and saying early and in one sentence why they will not be."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

import ray
from ray import serve as ray_serve
from ray.exceptions import ActorAlreadyExistsError
from ray.serve.schema import ApplicationStatusOverview, ServeStatus

from cast_ray.errors import EngineError, RemoteTimeout
from cast_ray.timeouts import START_TIMEOUT_S, answer_within, slow_start

_STATUS_TIMEOUT_S = 30.0
_START_AGAIN_S = 0.2
PLACE_TIMEOUT_S = 60.0
"""A replica that has no place for so long, in a cluster that is large enough, waits for what
others hold; those of our own run that only come and go are gone by then."""


def start_serve(http_options: dict[str, str | int] | None = None) -> None:
    """Start Serve, unless it runs.

    Runs that begin at the same moment may all find none; the first one's controller is then all of
    theirs.

    Args:
        http_options: where its proxies listen; None = it has no proxies.

    Raises:
        RemoteTimeout: it does not come up.
    """
    proxies = None if http_options else "Disabled"
    give_up = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            ray_serve.start(proxy_location=proxies, http_options=http_options)
            return
        # Another run is starting it; or its proxies take longer than Serve's own minute, and the
        # next call finds the controller that starts them.
        except (ActorAlreadyExistsError, TimeoutError) as error:
            if time.monotonic() > give_up:
                what = f"Serve did not start within {START_TIMEOUT_S:g} s ({error})"
                raise RemoteTimeout(slow_start(what)) from error
            time.sleep(_START_AGAIN_S)


def serve_status() -> ServeStatus:
    """Return what Serve says of all applications; its own call would wait for ever.

    Raises:
        RemoteTimeout: Serve's controller does not answer.
    """
    try:
        return answer_within(_STATUS_TIMEOUT_S, ray_serve.status, name="serve_status")
    except TimeoutError as error:
        raise RemoteTimeout(
            f"Serve's controller did not answer within {_STATUS_TIMEOUT_S:g} s; see its log"
        ) from error


def free_resources() -> Mapping[str, float]:
    """Return what of the cluster nobody has reserved."""
    return ray.available_resources()


def wait_until_running(
    names: Sequence[str],
    *,
    bundle: Mapping[str, float],
    free_before: Mapping[str, float],
    timeout_s: float,
    place_timeout_s: float = PLACE_TIMEOUT_S,
) -> None:
    """Return when every application runs.

    Args:
        names: the applications.
        bundle: what a replica asks for.
        free_before: what was free before they were deployed. Where that was enough, a replica that
            Serve calls unscheduled is one whose process is slow to start.
        timeout_s: limit for all of them.
        place_timeout_s: limit for a place that others hold.

    Raises:
        EngineError: one will not; the message is its first error.
        RemoteTimeout: one is not ready in time.
    """
    started = time.monotonic()
    while True:
        applications = serve_status().applications
        waiting = [name for name in names if applications[name].status != "RUNNING"]
        if not waiting:
            return
        seconds = time.monotonic() - started
        short = _short_of(bundle, len(names), free_before)
        for name in waiting:
            if applications[name].status in ("DEPLOY_FAILED", "UNHEALTHY"):
                raise EngineError(f"engine {name} did not start: {reason_of(applications[name])}")
            if seconds > place_timeout_s and short and _is_unplaced(applications[name]):
                raise EngineError(
                    f"engine {name} found no place for {seconds:.0f} s: it asks for "
                    f"{bundle[short]:g} {short}s, and {free_resources().get(short, 0):g} of the "
                    f"cluster's {ray.cluster_resources().get(short, 0):g} are free; see what holds "
                    "the others"
                )
        if seconds > timeout_s:
            what = f"engines {waiting} were not ready within {timeout_s:g} s, as their logs show"
            raise RemoteTimeout(slow_start(what))
        time.sleep(0.1)


def _short_of(bundle: Mapping[str, float], count: int, free_before: Mapping[str, float]) -> str:
    """Return a resource that is too scarce, now as it was before; empty where none is."""
    free = free_resources()
    for name, value in bundle.items():
        if free_before.get(name, 0) < value * count and free.get(name, 0) < value:
            return name
    return ""


def reason_of(application: ApplicationStatusOverview) -> str:
    """Return why an application failed, in one line out of Serve's message.

    Which is a whole traceback; its line with our own exception is what the replica raised.
    """
    messages = [status.message for status in application.deployments.values()]
    text = " ".join(filter(None, messages)) or application.message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("cast_ray.errors.")]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    line = (ours or errors or lines or ["no reason is known"])[-1]
    return line.removeprefix("cast_ray.errors.EngineError: ")


def _is_unplaced(application: ApplicationStatusOverview) -> bool:
    """Whether Serve says that a replica waits for a place, as it does after half a minute."""
    return any("to be scheduled" in status.message for status in application.deployments.values())
