"""The way to an application that is perhaps being deployed beside this one."""

from __future__ import annotations

import asyncio

from ray import serve as ray_serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from cast_ray.errors import RemoteTimeout

_PAUSE_S = 0.5


async def wait_for_app(app_name: str, *, timeout_s: float) -> DeploymentHandle:
    """Return the handle of an application once Serve knows it.

    Raises:
        RemoteTimeout: nobody deploys it.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout_s
    while True:
        try:
            return ray_serve.get_app_handle(app_name)
        except RayServeException:
            if loop.time() > give_up_at:
                raise RemoteTimeout(
                    f"there is no Serve application {app_name} after {timeout_s:g} s; deploy it "
                    "beside this one"
                ) from None
            await asyncio.sleep(_PAUSE_S)
