"""Starts a run's engines, waits for them, and says early and in one sentence why they fail."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import ray
from ray import serve as ray_serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatusOverview

from cast_ray.errors import EngineError, RemoteTimeout
from cast_ray.timeouts import slow_start
from serve.client.applications import (
    engine_names,
    reason_of,
    remove_engines,
    serve_status,
    start_serve,
)
from serve.client.engines import PolicyEngines

PLACE_TIMEOUT_S = 60.0
"""A replica that finds no place for this long, in a cluster that is large enough, waits for what
others hold; short-lived processes of its own run have ended by then."""


def run_engines(
    application: ray_serve.Application,
    run_id: str,
    *,
    num_engines: int,
    num_at_start: int | None,
    bundle: Mapping[str, float],
    start_timeout_s: float,
    workers_per_engine: int,
    place_timeout_s: float = PLACE_TIMEOUT_S,
    late_application: ray_serve.Application | None = None,
) -> PolicyEngines:
    """Run an application once for each engine and return them when enough are ready.

    Args:
        application: one engine.
        run_id: prefix of the names; applications of that name are replaced.
        num_engines: how many.
        num_at_start: how many to wait for before asking for the others; None = all.
        bundle: what each asks of the cluster.
        start_timeout_s: limit for those that are waited for, and for one that is restarted.
        workers_per_engine: see ``PolicyEngines``.
        place_timeout_s: longest wait for a place that others hold.
        late_application: an engine that joins later; None = the same.

    Raises:
        EngineError, RemoteTimeout: they are not ready; none is left running.
    """
    names = engine_names(run_id, num_engines)
    at_start = names[:num_at_start]
    others = names[len(at_start) :]
    start_serve()
    free_before = ray.available_resources()
    try:
        first = _run(application, at_start)
        wait_until_running(
            at_start,
            bundle=bundle,
            free_before=free_before,
            place_timeout_s=place_timeout_s,
            timeout_s=start_timeout_s + place_timeout_s,
        )
        # Not earlier: they would take the places of those that the run cannot begin without.
        handles = [*first, *_run(late_application or application, others)]
    except BaseException:  # also Ctrl-C: applications outlive their driver
        remove_engines(names)
        raise
    return PolicyEngines(
        handles,
        expected=others,
        start_timeout_s=start_timeout_s,
        workers_per_engine=workers_per_engine,
    )


def _run(application: ray_serve.Application, names: Sequence[str]) -> list[DeploymentHandle]:
    if not names:
        return []
    targets = [
        ray_serve.RunTarget(target=application, name=name, route_prefix=None) for name in names
    ]
    return ray_serve.run_many(targets, wait_for_applications_running=False)


def wait_until_running(
    names: Sequence[str],
    *,
    bundle: Mapping[str, float],
    free_before: Mapping[str, float],
    timeout_s: float,
    place_timeout_s: float,
) -> None:
    """Return when every application runs.

    Args:
        names: the applications.
        bundle: what a replica asks for.
        free_before: what was free before they were deployed. If that was enough, a replica that
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
                    f"{bundle[short]:g} {short}s, and {ray.available_resources().get(short, 0):g} "
                    f"of the cluster's {ray.cluster_resources().get(short, 0):g} are free; see "
                    "what holds the others"
                )
        if seconds > timeout_s:
            what = f"engines {waiting} were not ready within {timeout_s:g} s, as their logs show"
            raise RemoteTimeout(slow_start(what))
        time.sleep(0.1)


def _short_of(bundle: Mapping[str, float], count: int, free_before: Mapping[str, float]) -> str:
    """Return a resource that is too scarce, now as before the start; empty if there is none."""
    free = ray.available_resources()
    for name, value in bundle.items():
        if free_before.get(name, 0) < value * count and free.get(name, 0) < value:
            return name
    return ""


def _is_unplaced(application: ApplicationStatusOverview) -> bool:
    """Whether Serve says that a replica waits for a place, as it does after half a minute."""
    return any("to be scheduled" in status.message for status in application.deployments.values())
