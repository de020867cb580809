"""Policy engines behind Ray Serve: one single-replica application each, named after its run.

An update must reach every engine and a handle reaches one replica of its own choice, hence N
applications ``<run_id>-policy-<i>`` instead of N replicas. Serve is one per cluster and its
applications outlive their driver: everything here touches the applications of one run only.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Unpack

from ray import serve as ray_serve
from ray.exceptions import RayError

from cast_ray.errors import CastRayError, EngineError
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from cast_ray.weights.manifest import WeightManifest
from serve.client.engines import PolicyEngines, run_engines
from serve.client.readiness import PLACE_TIMEOUT_S
from serve.messages import EngineOptions, EngineStats, WeightReceipt
from serve.orphans import guard_children
from serve.weights.carrier import WeightCarrier
from serve.weights.receipts import WeightRoute

logger = logging.getLogger(__name__)

ENGINE_ENVIRONMENT = {
    # vLLM's core computes in the core process itself: no second process, no polling between the
    # two, 2 instead of 3 processes an engine. It then takes its number of threads from
    # OMP_NUM_THREADS, which ``deploy_engines`` sets to the CPUs of the engine.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Nor does vLLM bind the workers of a tensor-parallel engine to cores: it would want a NUMA node
    # for each, and cores that Ray has given to nobody else.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    # Warnings and errors go to standard error as they are. Setting up its log, vLLM would close all
    # handlers that there are, Serve's too: the replica could no longer say who it is, and would be
    # ended as soon as Serve's controller, started again, asks.
    "VLLM_CONFIGURE_LOGGING": "0",
}


_LATE_STARTS = 20
_DEATH_POLL_S = 0.2
_LAST_WORDS_S = 0.3
"""From the core's death to the replica's end: the errors of the requests in flight go out."""
_FOLLOW_S = 60.0
"""Longer than Serve takes to let the driver see that a replica takes requests again."""


@ray_serve.deployment(
    num_replicas=1,
    max_ongoing_requests=10_000,
    max_constructor_retry_count=1,
    # A replica whose engine died or stalled ends itself; Serve sees that at its next check, without
    # counting to three. A check costs next to nothing where tokens come.
    health_check_period_s=1,
    graceful_shutdown_timeout_s=10,
)
class PolicyDeployment:
    """Holds one ``PolicyEngine`` and forwards to it."""

    async def __init__(
        self, *, weights_directory: str, weight_source: str, **engine: Unpack[EngineOptions]
    ) -> None:
        # Imported here because only the replica needs vLLM, not the driver that names this class.
        from serve.engine.engine import PolicyEngine

        guard_children()
        self._update_timeout_s = engine["update_timeout_s"]
        self._carrier = WeightCarrier(
            weight_source, directory=weights_directory, timeout_s=self._update_timeout_s
        )
        self._engine = await PolicyEngine.start(**engine)
        # A replica that Serve started again comes back with start-up weights, maybe on a new host.
        await self._catch_up()
        self._death_watch = asyncio.create_task(self._end_with_the_core())
        self._is_seen = False
        self._following = asyncio.create_task(self._follow())

    async def generate(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncIterator[list[tuple[int, Completion | Refusal]]]:
        """Forward to ``PolicyEngine.generate``."""
        async for batch in self._engine.generate(requests):
            yield batch

    async def score(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        """Forward to ``PolicyEngine.score``."""
        return await self._engine.score(token_ids)

    async def update_weights(
        self, manifest: WeightManifest, route: WeightRoute | None = None
    ) -> WeightReceipt:
        """Forward to ``PolicyEngine.update_weights``; without a route, bring the version first."""
        # Shielded: a driver that gives up while the bytes travel must not leave old weights here.
        return await asyncio.shield(asyncio.create_task(self._update(manifest, route)))

    async def _update(self, manifest: WeightManifest, route: WeightRoute | None) -> WeightReceipt:
        have_here = self._carrier.bring if route is None else self._carrier.place
        local = await asyncio.to_thread(have_here, manifest)
        receipt = await self._engine.update_weights(
            local, timeout_s=self._update_timeout_s, route=route
        )
        self._is_seen = True
        return receipt

    async def rest(self) -> bool:
        """Forward to ``PolicyEngine.rest`` and return that it is done; no answer says nothing."""
        await asyncio.shield(asyncio.create_task(self._engine.rest()))
        return True

    async def wake(self) -> bool:
        """Forward to ``PolicyEngine.wake``; see ``rest``."""
        await asyncio.shield(asyncio.create_task(self._engine.wake()))
        return True

    async def stats(self) -> EngineStats:
        """Forward to ``PolicyEngine.stats``."""
        return self._engine.stats

    async def check_health(self) -> None:
        """End the replica, so that Serve starts another, when the engine is dead or stalled."""
        try:
            await self._engine.check_health()
        except EngineError as error:
            # Not raised: Serve would ask twice more, and then wait for requests that never end.
            self._end(str(error))

    async def _end_with_the_core(self) -> None:
        while not self._engine.is_dead:
            await asyncio.sleep(_DEATH_POLL_S)
        await asyncio.sleep(_LAST_WORDS_S)
        self._end("a process of the vLLM engine died")

    def _end(self, reason: str) -> None:
        """End this process; its guardian ends what it started, also what is stopped."""
        logger.error("This engine ends, and Serve starts another: %s.", reason)
        os._exit(1)

    async def _catch_up(self) -> None:
        """Take the newest published version, and again while newer ones appear meanwhile."""
        while True:
            manifest = await asyncio.to_thread(self._carrier.current)
            if manifest is None or manifest.version <= self._engine.weight_version:
                return
            await self._engine.take_newer(manifest, timeout_s=self._update_timeout_s)

    async def _follow(self) -> None:
        """Take what is published before the driver sees that this replica is there."""
        for _ in range(int(_FOLLOW_S)):
            await asyncio.sleep(1.0)
            if self._is_seen:  # by the driver; not cancelled, an update may be under way
                return
            try:
                await self._catch_up()
            except (CastRayError, RayError) as error:
                logger.error("A published version was not taken: %s", error)

    def __del__(self) -> None:
        """End vLLM's processes; Serve calls this when it removes the replica."""
        if hasattr(self, "_engine"):
            self._death_watch.cancel()
            self._following.cancel()
            self._engine.shutdown()


def deploy_engines(
    run_id: str,
    *,
    num_engines: int,
    num_cpus: float,
    num_threads: int,
    env_vars: Mapping[str, str],
    weights_directory: str,
    start_timeout_s: float,
    num_gpus: float = 0.0,
    num_at_start: int | None = None,
    place_timeout_s: float = PLACE_TIMEOUT_S,
    weight_source: str = "",
    **engine: Unpack[EngineOptions],
) -> PolicyEngines:
    """Start the engines of a run, all at once, and return them when enough have answered a request.

    Each has a placement group of its own. One that finds no place keeps asking for it, and joins
    the others when a node comes that holds it.

    Args:
        run_id: prefix of the applications' names; applications of that name are replaced.
        num_engines: how many.
        num_cpus: CPUs that Ray reserves for each, on one node.
        num_threads: threads that each computes with; more than the cores it can have to itself
            makes it ten times slower.
        env_vars: further environment of the engines' processes.
        weights_directory: where new versions are published, and brought to on other hosts; an
            engine that Serve starts again loads the newest from here.
        start_timeout_s: limit for the engines to be ready.
        num_gpus: GPUs that Ray reserves for each.
        num_at_start: so many engines are waited for; None = all.
        place_timeout_s: how long one may wait for a place that others hold.
        weight_source: name of the ``WeightSource`` that engines on other hosts than the learner's
            get new versions from; empty where all is on one host.
        **engine: see ``EngineOptions``.

    Raises:
        EngineError: an engine has no room in the cluster, or did not start; one sentence says why.
        RemoteTimeout: the engines were not ready in time.
    """
    environment = {**ENGINE_ENVIRONMENT, "OMP_NUM_THREADS": str(num_threads), **env_vars}
    bundle = {"CPU": num_cpus} | ({"GPU": num_gpus} if num_gpus else {})
    deployment = PolicyDeployment.options(
        # A check may wait for a probe, and for an event loop that takes up a thousand requests.
        health_check_timeout_s=engine["probe_timeout_s"] + 15,
        placement_group_bundles=[bundle],
        ray_actor_options={
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "runtime_env": {"env_vars": environment},
        },
    )
    arguments = {"weights_directory": weights_directory, "weight_source": weight_source, **engine}
    # The first start of one that joins later may fail with its node, and the next node may come.
    late = deployment.options(max_constructor_retry_count=_LATE_STARTS)
    return run_engines(
        deployment.bind(**arguments),
        run_id,
        num_engines=num_engines,
        num_at_start=num_at_start,
        bundle=bundle,
        start_timeout_s=start_timeout_s,
        workers_per_engine=engine["tensor_parallel_size"],
        place_timeout_s=place_timeout_s,
        late_application=late.bind(**arguments),
    )
