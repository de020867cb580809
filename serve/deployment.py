"""Policy engines behind Ray Serve: one single-replica application each, named after its run.

An update must reach every engine and a handle reaches one replica of its own choice, hence N
applications ``<run_id>-policy-<i>`` instead of N replicas. Serve is one per cluster and its
applications outlive their driver: everything here touches the applications of one run only.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Unpack

import ray
from ray import serve as ray_serve
from ray.serve.handle import DeploymentHandle, DeploymentResponse
from ray.serve.schema import ApplicationStatusOverview

from cast_ray.errors import EngineError, RemoteTimeout
from cast_ray.generation import Completion, GenerateRequest
from cast_ray.weights import WeightManifest, latest_manifest
from serve.engine_link import local_error
from serve.wire import EngineOptions, EngineStats, WeightReceipt

ENGINE_ENVIRONMENT = {
    # vLLM's core computes in the core process itself: no second process, no polling between the
    # two, 2 instead of 3 processes an engine. It then takes its number of threads from
    # OMP_NUM_THREADS, which ``deploy_engines`` sets to the CPUs of the engine.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@ray_serve.deployment(
    num_replicas=1,
    max_ongoing_requests=10_000,
    max_constructor_retry_count=1,
    health_check_period_s=5,
    health_check_timeout_s=30,
    graceful_shutdown_timeout_s=10,
)
class PolicyDeployment:
    """Holds one ``PolicyEngine`` and forwards to it."""

    async def __init__(
        self, *, weights_directory: str, update_timeout_s: float, **engine: Unpack[EngineOptions]
    ) -> None:
        # Imported here because only the replica needs vLLM, not the driver that names this class.
        from serve.engine import PolicyEngine

        self._update_timeout_s = update_timeout_s
        self._engine = await PolicyEngine.start(**engine)
        # A replica that Serve started again comes back with start-up weights.
        manifest = latest_manifest(weights_directory)
        if manifest is not None and manifest.version > engine["weight_version"]:
            await self._engine.update_weights(manifest, timeout_s=update_timeout_s)

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion]]]:
        """Forward to ``PolicyEngine.generate``."""
        async for batch in self._engine.generate(requests):
            yield batch

    async def score(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        """Forward to ``PolicyEngine.score``."""
        return await self._engine.score(token_ids)

    async def update_weights(self, manifest: WeightManifest) -> WeightReceipt:
        """Forward to ``PolicyEngine.update_weights``."""
        return await self._engine.update_weights(manifest, timeout_s=self._update_timeout_s)

    async def stats(self) -> EngineStats:
        """Forward to ``PolicyEngine.stats``."""
        return self._engine.stats

    async def check_health(self) -> None:
        """Forward to ``PolicyEngine.check_health``; Serve restarts the replica when it raises."""
        await self._engine.check_health()

    def __del__(self) -> None:
        """End vLLM's processes; Serve calls this when it removes the replica."""
        if hasattr(self, "_engine"):
            self._engine.shutdown()


class PolicyEngines:
    """The engines of one run, as the driver sees them: every call goes to all of them."""

    def __init__(self, handles: Sequence[DeploymentHandle]) -> None:
        self.handles = tuple(handles)

    def update_weights(self, manifest: WeightManifest, *, timeout_s: float) -> list[WeightReceipt]:
        """Change all engines to a published version and return their receipts.

        Raises:
            WeightSyncError: an engine does not hold what was sent; the message names the layer.
            RemoteTimeout: an engine did not answer.
        """
        return self._ask(lambda handle: handle.update_weights.remote(manifest), timeout_s)

    def score(self, token_ids: Sequence[int], *, timeout_s: float) -> list[tuple[float, ...]]:
        """Return each engine's ``[L - 1]`` logprobs of tokens 1 .. L-1."""
        return self._ask(lambda handle: handle.score.remote(tuple(token_ids)), timeout_s)

    def stats(self, *, timeout_s: float) -> list[EngineStats]:
        """Return each engine's totals."""
        return self._ask(lambda handle: handle.stats.remote(), timeout_s)

    def remove(self) -> None:
        """Delete these applications and wait until they are gone."""
        for handle in self.handles:
            ray_serve.delete(handle.app_name)

    def _ask(
        self, call: Callable[[DeploymentHandle], DeploymentResponse], timeout_s: float
    ) -> list[Any]:  # Any: Serve does not type a response
        deadline = time.monotonic() + timeout_s
        responses = [call(handle) for handle in self.handles]
        answers = []
        for handle, response in zip(self.handles, responses, strict=True):
            try:
                answers.append(response.result(timeout_s=max(0.0, deadline - time.monotonic())))
            except TimeoutError as error:
                raise RemoteTimeout(
                    f"engine {handle.app_name} did not answer within {timeout_s} s; see its log"
                ) from error
            except ray.exceptions.RayError as error:
                raise local_error(error, handle.app_name) from error
        return answers


def deploy_engines(
    run_id: str,
    *,
    num_engines: int,
    num_cpus: float,
    num_threads: int,
    env_vars: Mapping[str, str],
    weights_directory: str,
    update_timeout_s: float,
    start_timeout_s: float,
    **engine: Unpack[EngineOptions],
) -> PolicyEngines:
    """Start the engines of a run, all at once, and return them when each has answered a request.

    Args:
        run_id: prefix of the applications' names; applications of that name are replaced.
        num_engines: how many.
        num_cpus: CPUs that Ray reserves for each.
        num_threads: threads that each computes with; more than the cores it can have to itself
            makes it ten times slower.
        env_vars: further environment of the engines' processes.
        weights_directory: where new versions are published; an engine that Serve starts again
            loads the newest from here.
        update_timeout_s: limit for one update of one engine.
        start_timeout_s: limit for all engines to be ready.
        **engine: see ``EngineOptions``.

    Raises:
        EngineError: an engine did not start.
        RemoteTimeout: the engines were not ready in time.
    """
    environment = {**ENGINE_ENVIRONMENT, "OMP_NUM_THREADS": str(num_threads), **env_vars}
    deployment = PolicyDeployment.options(
        ray_actor_options={"num_cpus": num_cpus, "runtime_env": {"env_vars": environment}}
    )
    application = deployment.bind(
        weights_directory=weights_directory, update_timeout_s=update_timeout_s, **engine
    )
    names = [f"{run_id}-policy-{index}" for index in range(num_engines)]
    ray_serve.start(proxy_location="Disabled")
    handles = ray_serve.run_many(
        [ray_serve.RunTarget(target=application, name=name, route_prefix=None) for name in names],
        wait_for_applications_running=False,
    )
    engines = PolicyEngines(handles)
    try:
        _wait_until_running(names, start_timeout_s)
    except (EngineError, RemoteTimeout):
        engines.remove()
        raise
    return engines


def _wait_until_running(names: Sequence[str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        applications = ray_serve.status().applications
        for name in names:
            if applications[name].status in ("DEPLOY_FAILED", "UNHEALTHY"):
                raise EngineError(f"engine {name} did not start: {_reason_of(applications[name])}")
        if all(applications[name].status == "RUNNING" for name in names):
            return
        if time.monotonic() > deadline:
            waiting = [name for name in names if applications[name].status != "RUNNING"]
            raise RemoteTimeout(f"engines {waiting} were not ready within {timeout_s} s")
        time.sleep(0.1)


def _reason_of(application: ApplicationStatusOverview) -> str:
    messages = [status.message for status in application.deployments.values()]
    text = " ".join(filter(None, messages)) or application.message
    # Serve gives the whole traceback; its last line is the exception that the replica raised.
    return text.strip().splitlines()[-1].removeprefix("cast_ray.errors.EngineError: ")
