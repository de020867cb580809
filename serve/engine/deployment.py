"""Policy engines behind Ray Serve: one single-replica application each, named after its run.

An update must reach every engine, and a handle chooses its replica itself, hence N applications
``<run_id>-policy-<i>`` instead of N replicas. A cluster has one Serve, whose applications outlive
their driver: everything here touches the applications of one run only.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence

from ray import serve as ray_serve
from ray.exceptions import RayError

from cast_ray.cluster.placement import bundle_of
from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import CastRayError, EngineError
from cast_ray.rollout.generate import Completion, GenerateRequest, Refusal
from cast_ray.weights.manifest import WeightManifest
from serve.client.engines import PolicyEngines
from serve.client.start import PLACE_TIMEOUT_S, run_engines
from serve.messages import EngineOptions, EngineStats, WeightReceipt
from serve.orphans import guard_children
from serve.weights.carrier import WeightCarrier
from serve.weights.receipts import WeightRoute

logger = logging.getLogger(__name__)

ENGINE_ENVIRONMENT = {
    # vLLM's core computes in the core process itself: no second process, no polling between the
    # two, 2 instead of 3 processes per engine. It takes its number of threads from
    # OMP_NUM_THREADS, which ``deploy_engines`` sets.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # vLLM must not bind the workers of a tensor-parallel engine to cores: it would want a NUMA node
    # for each, and exclusive cores, which Ray does not grant.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    # When vLLM sets up its log it closes all handlers, Serve's too: the replica could no longer say
    # who it is, and Serve's controller would end it after a restart.
    "VLLM_CONFIGURE_LOGGING": "0",
}


_LATE_STARTS = 20
_DEATH_POLL_S = 0.2
_LAST_WORDS_S = 0.3
"""From the core's death to the replica's exit, so that requests in flight get their errors."""
_FOLLOW_S = 60.0
"""Longer than Serve takes to tell the driver that a replica takes requests again."""


@ray_serve.deployment(
    num_replicas=1,
    max_ongoing_requests=10_000,
    max_constructor_retry_count=1,
    # A replica whose engine died or stalled exits; Serve notices at its next check, without waiting
    # for three failures. A check costs next to nothing while tokens arrive.
    health_check_period_s=1,
    graceful_shutdown_timeout_s=10,
)
class PolicyDeployment:
    """Holds one ``PolicyEngine`` and forwards to it."""

    async def __init__(
        self, options: EngineOptions, *, weights_directory: str, weight_source: str
    ) -> None:
        # Imported here because only the replica needs vLLM, not the driver that names this class.
        from serve.engine.engine import PolicyEngine

        guard_children()
        self._update_timeout_s = options.engine.update_timeout_s
        self._carrier = WeightCarrier(
            weight_source, directory=weights_directory, timeout_s=self._update_timeout_s
        )
        self._engine = await PolicyEngine.start(options)
        # A replica that Serve restarted has start-up weights, and may be on a new host.
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
        """Forward to ``EngineWeights.update``; without a route, bring the version here first."""
        # Shielded: a driver that stops waiting during the transfer must not leave old weights here.
        return await asyncio.shield(asyncio.create_task(self._update(manifest, route)))

    async def _update(self, manifest: WeightManifest, route: WeightRoute | None) -> WeightReceipt:
        have_here = self._carrier.bring if route is None else self._carrier.place
        local = await asyncio.to_thread(have_here, manifest)
        receipt = await self._engine.weights.update(
            local, timeout_s=self._update_timeout_s, route=route
        )
        self._is_seen = True
        return receipt

    async def rest(self) -> bool:
        """Forward to ``EngineWeights.rest``; True, because None would mean an engine is down."""
        await asyncio.shield(asyncio.create_task(self._engine.weights.rest()))
        return True

    async def wake(self) -> bool:
        """Forward to ``EngineWeights.wake``; see ``rest``."""
        await asyncio.shield(asyncio.create_task(self._engine.weights.wake()))
        return True

    async def stats(self) -> EngineStats:
        """Forward to ``PolicyEngine.stats``."""
        return self._engine.stats

    async def check_health(self) -> None:
        """Exit if the engine is dead or stalled, so that Serve starts another replica."""
        try:
            await self._engine.check_health()
        except EngineError as error:
            # Not raised: Serve would ask twice more, then wait for requests that never end.
            self._end(str(error))

    async def _end_with_the_core(self) -> None:
        while not self._engine.is_dead:
            await asyncio.sleep(_DEATH_POLL_S)
        await asyncio.sleep(_LAST_WORDS_S)
        self._end(f"a process of the vLLM engine died: {self._engine.cause_of_death}")

    def _end(self, reason: str) -> None:
        """Exit; the orphan killer ends this process's children, also stopped ones."""
        logger.error("This engine exits, and Serve starts another: %s.", reason)
        os._exit(1)

    async def _catch_up(self) -> None:
        """Take the newest published version, until no newer one has appeared meanwhile."""
        while True:
            manifest = await asyncio.to_thread(self._carrier.current)
            if manifest is None or manifest.version <= self._engine.weights.version:
                return
            await self._engine.weights.take_newer(manifest, timeout_s=self._update_timeout_s)

    async def _follow(self) -> None:
        """Take versions published before the driver notices this replica."""
        for _ in range(int(_FOLLOW_S)):
            await asyncio.sleep(1.0)
            if self._is_seen:  # by the driver; not cancelled, because an update may be running
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
    options: EngineOptions,
    resources: ResourcesConfig,
    *,
    weights_directory: str,
    weight_source: str = "",
    env_vars: Mapping[str, str] | None = None,
    place_timeout_s: float = PLACE_TIMEOUT_S,
) -> PolicyEngines:
    """Start the engines of a run at once, and return them when enough have answered a request.

    Each has its own placement group. An engine without a place keeps asking for one, and joins the
    others when a node arrives that holds it.

    Args:
        run_id: prefix of the applications' names; applications of that name are replaced.
        options: of each engine.
        resources: how many engines, how many to wait for, and what Ray reserves for each.
        weights_directory: where new versions are published, and brought to on other hosts; an
            engine that Serve restarts loads the newest from here.
        weight_source: name of the ``WeightSource`` from which engines on other hosts than the
            learner's get new versions; empty if all are on one host.
        env_vars: further environment of the engines' processes.
        place_timeout_s: longest wait for a place that others hold.

    Raises:
        EngineError: an engine has no room in the cluster, or did not start; one sentence says why.
        RemoteTimeout: the engines were not ready in time.
    """
    engine = options.engine
    environment = {
        **ENGINE_ENVIRONMENT,
        "OMP_NUM_THREADS": str(engine.num_threads),
        **(env_vars or {}),
    }
    bundle = dict(bundle_of(resources.cpus_per_engine, resources.gpus_per_engine))
    deployment = PolicyDeployment.options(
        # A check may wait for a probe, and for an event loop that handles a thousand requests.
        health_check_timeout_s=options.probe_timeout_s + 15,
        placement_group_bundles=[bundle],
        ray_actor_options={
            "num_cpus": resources.cpus_per_engine,
            "num_gpus": resources.gpus_per_engine,
            "runtime_env": {"env_vars": environment},
        },
    )
    arguments = {"weights_directory": weights_directory, "weight_source": weight_source}
    # An engine that joins later may fail on its first node, and the next node may arrive.
    late = deployment.options(max_constructor_retry_count=_LATE_STARTS)
    return run_engines(
        deployment.bind(options, **arguments),
        run_id,
        num_engines=resources.engines,
        num_at_start=resources.engines_at_start,
        bundle=bundle,
        start_timeout_s=engine.start_timeout_s,
        workers_per_engine=engine.tensor_parallel_size,
        place_timeout_s=place_timeout_s,
        late_application=late.bind(options, **arguments),
    )
