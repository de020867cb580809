"""The site as a Serve application: one process, which holds the games being played."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import FastAPI
from ray import serve as ray_serve
from ray.serve.deployment import Application

from cast_ray.games.analysis import Analyst
from cast_ray.rollout.chat import ChatTokenizer, tokenizer_digest
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.rollout.specs import conversation_limit
from serve.client.client import connect_policy
from serve.service.access import games_with_deadlocks
from serve.service.app_handles import MODEL_APP, ONE_LOOP, wait_for_app
from serve.site.agent import Agent
from serve.site.app import Players, SiteSettings, build_site

if TYPE_CHECKING:
    from serve.service.plan import ServicePlan


def site_application(
    plan: ServicePlan, *, analyst: Callable[[], AbstractAsyncContextManager[Analyst]]
) -> Application:
    """Return the application for ``/``.

    Args:
        plan: of the service; its model plays.
        analyst: called once in the replica, for as long as it lives.
    """
    settings = SiteSettings(
        guard=plan.guard, runs=plan.runs, games_with_deadlocks=games_with_deadlocks()
    )

    @asynccontextmanager
    async def players() -> AsyncIterator[Players]:
        async with analyst() as found:
            yield Players(analyst=found, agent=await _connected(plan))

    class Site:
        """Everything is in the ASGI application."""

    def built() -> FastAPI:  # Serve calls a plain function in the replica
        return build_site(settings, players)

    hosted = ray_serve.ingress(built)(Site)
    deployment = ray_serve.deployment(
        name="Site",
        num_replicas=1,  # a game lives in one process
        max_ongoing_requests=settings.guard.max_requests + 64,  # the guard refuses before Serve
        max_queued_requests=settings.guard.max_requests,
        ray_actor_options={"num_cpus": 0, "runtime_env": ONE_LOOP},
        health_check_period_s=5,
        graceful_shutdown_timeout_s=60,
    )
    return deployment(hosted).bind()


async def _connected(plan: ServicePlan) -> Agent:
    """Return the agent once Serve knows its servers.

    Raises:
        RemoteTimeout: they are not deployed in time.
    """
    engine = plan.config.engine
    await wait_for_app(MODEL_APP, timeout_s=engine.start_timeout_s)
    generate = connect_policy(
        [MODEL_APP],
        slots_per_engine=engine.max_num_seqs * plan.max_replicas,
        timeout_s=engine.request_timeout_s,
        recovery_timeout_s=engine.start_timeout_s,
    )
    tokenizer = tokenizer_digest(plan.model_dir)

    async def ask(request: GenerateRequest, lane: Lane) -> Completion:
        # While the model is being replaced, the old or the new one may get the request.
        return await generate(replace(request, tokenizer=tokenizer), lane)

    return Agent(
        model=plan.name,
        tokenizer=ChatTokenizer(plan.model_dir, plan.pieces),
        generate=ask,
        limits=plan.config.rollout,
        conversation_tokens=conversation_limit(plan.config),
    )
