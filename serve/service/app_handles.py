"""The applications' names, their handles while they may still be deploying, and environments."""

from __future__ import annotations

import asyncio

from ray import serve as ray_serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from cast_ray.errors import RemoteTimeout
from serve.client.link import DIRECT

MODEL_APP, OPENAI_APP, SITE_APP = "cast-ray-model", "cast-ray-openai", "cast-ray-site"
ONE_LOOP = {
    "env_vars": {
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    }
}
"""Runtime environment of a replica whose code never blocks: its handlers, its own requests and
Serve share one event loop. Two threads fewer save a third of a turn's time."""
QUICK_PROXY = {"RAY_SERVE_USE_GRPC_BY_DEFAULT": "1", **DIRECT}
"""Environment of the HTTP proxies, and so of the process that starts Ray: the pieces of a stream
arrive as messages, not as objects."""

_PAUSE_S = 0.5


async def wait_for_app(app_name: str, *, timeout_s: float) -> DeploymentHandle:
    """Return the handle of an application once Serve knows it.

    Raises:
        RemoteTimeout: it is not deployed in time.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout_s
    while True:
        try:
            return ray_serve.get_app_handle(app_name)
        except RayServeException:
            if loop.time() > give_up_at:
                raise RemoteTimeout(
                    f"there is no Serve application {app_name} after {timeout_s:g} s; deploy it"
                ) from None
            await asyncio.sleep(_PAUSE_S)
