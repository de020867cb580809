"""``cast-ray serve``: the trained agent, the solver and the page, on Ray Serve, until Ctrl-C."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ray import serve as ray_serve
from ray.serve.deployment import Application
from ray.serve.exceptions import RayServeException

from cast_ray.cluster.session import ray_session
from cast_ray.config.train import TrainConfig
from cast_ray.errors import EngineError
from cast_ray.runs.uris import PathOrUri
from serve.client.applications import start_serve
from serve.engine.first_error import first_error
from serve.service.access import api_keys, base_url, check_port, guard_settings
from serve.service.app_handles import QUICK_PROXY
from serve.service.plan import MODEL_APP, OPENAI_APP, OPENAI_ROUTE, SITE_APP, ServicePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of ``cast-ray serve``."""

    host: str = "127.0.0.1"
    port: int = 8000
    name: str = ""
    """Of the model, for clients; empty = its directory's."""
    max_replicas: int = 1
    """Most model servers, if requests need them; at least 1."""
    runs: Path | None = None
    """Directory of runs to show."""


def serve_model(
    model: PathOrUri,
    config: TrainConfig,
    options: ServiceOptions,
    *,
    say: Callable[[str], None],
    until: threading.Event,
) -> None:
    """Start the service, and end it when ``until`` is set.

    Args:
        model: model directory, run directory (its ``model/`` is served), or the URI of one.
        config: engine and token limits; those of the run if it is one.
        options: where and how.
        say: prints a line for the user.
        until: ends the service.

    Raises:
        ConfigError, ModelError: bad input, found before anything starts.
        EngineError: an application does not start.
    """
    plan = ServicePlan.of(
        model,
        config,
        guard=guard_settings(options.host, api_keys()),
        name=options.name,
        max_replicas=options.max_replicas,
        runs=options.runs,
    )
    if not os.environ.get("RAY_ADDRESS"):  # else Serve may be listening there already
        check_port(options.host, options.port)
    for variable, value in QUICK_PROXY.items():
        os.environ.setdefault(variable, value)
    with ray_session(num_cpus=plan.num_cpus):
        start_serve({"host": options.host, "port": options.port})
        try:
            say(f"starting a server of {plan.name} (about a minute)")
            _run(MODEL_APP, plan.model_application(), route=None)
            say("starting the site")
            _run(OPENAI_APP, plan.openai_application(), route=OPENAI_ROUTE)
            _run(SITE_APP, plan.site_application(), route="/")
            say(ready_text(options, plan.name))
            until.wait()
            say("ending")
        finally:
            for app in (SITE_APP, OPENAI_APP, MODEL_APP):
                ray_serve.delete(app)


def ready_text(options: ServiceOptions, name: str) -> str:
    """Return where the service can be reached."""
    base = base_url(options.host, options.port)
    return "\n".join(
        [
            f"{name} is served:",
            f"  {base}/       play, watch, look into runs",
            f"  {base}/docs   every request, to try out",
            f"  {base}/v1     for OpenAI's clients: base_url, with model {name!r}",
            "Ctrl-C ends it.",
        ]
    )


def _run(app_name: str, application: Application, *, route: str | None) -> None:
    try:
        ray_serve.run(application, name=app_name, route_prefix=route)
    except (RuntimeError, RayServeException) as error:
        reason = _reason(app_name) or str(error).strip().splitlines()[0]
        raise EngineError(
            f"the application {app_name} does not start: {reason}; see Serve's logs"
        ) from error


def _reason(app_name: str) -> str:
    """Return the error that ended an application's start, from Serve's status."""
    app = ray_serve.status().applications.get(app_name)
    said = "\n".join(found.message for found in app.deployments.values()) if app else ""
    return first_error(said)
