"""``cast-ray serve``: the trained agent, the solver and the page, on Ray Serve, until Ctrl-C."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ray import serve as ray_serve
from ray.serve.deployment import Application
from ray.serve.exceptions import RayServeException

from cast_ray.cluster.session import ray_session
from cast_ray.errors import EngineError
from serve.client.applications import remove_engines, start_serve
from serve.engine.first_error import first_error
from serve.service.access import base_url, check_port
from serve.service.app_handles import MODEL_APP, OPENAI_APP, QUICK_PROXY, SITE_APP
from serve.service.plan import OPENAI_ROUTE, ServicePlan

KEEP_ALIVE_S = 20
"""How long an idle connection stays open; of what a server can limit, Serve passes only this on."""


def serve_model(
    plan: ServicePlan,
    *,
    host: str,
    port: int,
    say: Callable[[str], None],
    until: threading.Event,
) -> None:
    """Start the service, and end it when ``until`` is set.

    Args:
        plan: what is served.
        host: address to listen on.
        port: of the page and the API.
        say: prints a line for the user.
        until: ends the service.

    Raises:
        EngineError: an application does not start.
    """
    if not os.environ.get("RAY_ADDRESS"):  # else Serve may be listening there already
        check_port(host, port)
    os.environ.update(QUICK_PROXY)
    with ray_session(num_cpus=plan.num_cpus):
        start_serve({"host": host, "port": port, "keep_alive_timeout_s": KEEP_ALIVE_S})
        try:
            say(f"starting a server of {plan.name} (about a minute)")
            _run(MODEL_APP, plan.model_application(), route=None)
            say("starting the site")
            _run(OPENAI_APP, plan.openai_application(), route=OPENAI_ROUTE)
            _run(SITE_APP, plan.site_application(), route="/")
            say(_ready_text(base_url(host, port), plan.name))
            until.wait()
            say("ending")
        finally:
            remove_engines((SITE_APP, OPENAI_APP, MODEL_APP))


def _ready_text(base: str, name: str) -> str:
    """Return where the service can be reached."""
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
