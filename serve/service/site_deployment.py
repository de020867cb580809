"""The site as a Serve application: one process, which holds the games being played."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastapi import FastAPI
from ray import serve as ray_serve
from ray.serve.deployment import Application

from cast_ray.games.analysis import Analyst
from cast_ray.rollout.chat import ChatPieces, ChatTokenizer, tokenizer_digest
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from serve.client.client import connect_policy
from serve.service.app_handles import ONE_LOOP, wait_for_app
from serve.site.agent import Agent, AnswerLimits
from serve.site.app import Players, SiteSettings, build_site


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The model that plays, and how to reach it."""

    app_name: str
    """Of the application with the model servers."""
    model: str
    """Its name for users."""
    model_dir: str
    """Holds ``tokenizer.json``."""
    pieces: ChatPieces
    limits: AnswerLimits
    slots: int
    """Answers that the servers write in parallel."""
    timeout_s: float
    """A server that writes nothing for this long has stalled."""
    recovery_timeout_s: float
    """How long a turn waits for a server that is restarted."""


def site_application(
    settings: SiteSettings,
    *,
    agent: AgentOptions | None,
    analyst: Callable[[], AbstractAsyncContextManager[Analyst]],
) -> Application:
    """Return the application for ``/``.

    Args:
        settings: limits, keys, runs.
        agent: who plays; None = only humans and the solver.
        analyst: called once in the replica, for as long as it lives.
    """

    @asynccontextmanager
    async def players() -> AsyncIterator[Players]:
        async with analyst() as found:
            yield Players(analyst=found, agent=await _connected(agent) if agent else None)

    class Site:
        """Everything is in the ASGI application."""

    def built() -> FastAPI:  # Serve calls a plain function in the replica
        return build_site(settings, players)

    hosted = ray_serve.ingress(built)(Site)
    deployment = ray_serve.deployment(
        name="Site",
        num_replicas=1,  # a game lives in one process
        max_ongoing_requests=settings.guard.max_requests + 64,  # the guard refuses before Serve
        ray_actor_options={"num_cpus": 0, "runtime_env": ONE_LOOP},
        health_check_period_s=5,
        graceful_shutdown_timeout_s=60,
    )
    return deployment(hosted).bind()


async def _connected(options: AgentOptions) -> Agent:
    """Return the agent once Serve knows its servers.

    Raises:
        RemoteTimeout: they are not deployed in time.
    """
    await wait_for_app(options.app_name, timeout_s=options.recovery_timeout_s)
    generate = connect_policy(
        [options.app_name],
        slots_per_engine=options.slots,
        timeout_s=options.timeout_s,
        recovery_timeout_s=options.recovery_timeout_s,
    )
    model_dir = Path(options.model_dir)
    tokenizer = tokenizer_digest(model_dir)

    async def ask(request: GenerateRequest, lane: Lane) -> Completion:
        # While the model is being replaced, the old or the new one may get the request.
        return await generate(replace(request, tokenizer=tokenizer), lane)

    return Agent(
        model=options.model,
        tokenizer=ChatTokenizer(model_dir, options.pieces),
        generate=ask,
        limits=options.limits,
    )
