"""The application: routes, page, documentation, errors, and the guard in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import fastapi_offline
from fastapi import Depends, FastAPI
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles

from cast_ray.games.analysis import Analyst
from cast_ray.runs.report.script import WEB
from serve.site.agent import Agent
from serve.site.guard import Guard, GuardSettings
from serve.site.problems import add_problem_handlers
from serve.site.routes import Site, router
from serve.site.runs.routes import router_of
from serve.site.schemas import About, ProblemBody
from serve.site.sessions import SessionLimits, Sessions

_SWAGGER = Path(fastapi_offline.__file__).parent / "static"
"""Swagger UI's own files; nothing else of that package is used."""
_DESCRIPTION = (
    "Moves, games and exact values. Every error is JSON with a stable `code`, a sentence and the "
    "`field` that it is about."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """What a process needs to play; made inside its event loop."""

    analyst: Analyst
    agent: Agent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """How the service behaves."""

    guard: GuardSettings = field(default_factory=GuardSettings)
    sessions: SessionLimits = field(default_factory=SessionLimits)
    games_with_deadlocks: frozenset[str] = frozenset()
    """Those that end where the solver proves them lost, as in training."""
    runs: Path | None = None
    """Directory of training runs to show; None = none are shown."""


def build_site(
    settings: SiteSettings, players: Callable[[], AbstractAsyncContextManager[Players]]
) -> FastAPI:
    """Return the application.

    Args:
        settings: of this process.
        players: entered once in the event loop that serves, and left when that ends.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with players() as found:
            sessions = Sessions(settings.sessions, found.analyst, found.agent)
            app.state.site = Site(
                analyst=found.analyst,
                agent=found.agent,
                sessions=sessions,
                games_with_deadlocks=settings.games_with_deadlocks,
                about=_about(settings, found.agent),
            )
            try:
                yield
            finally:
                await sessions.close()

    app = FastAPI(
        title="cast_ray",
        version=version("cast-ray"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": ProblemBody, "description": "The error."}},
    )
    # The guard checks the key; it is declared here so that the documentation asks for it.
    keyed = [Depends(HTTPBearer(auto_error=False))] if settings.guard.key_digests else []
    app.include_router(router, dependencies=keyed)
    if settings.runs is not None:
        app.include_router(router_of(settings.runs), dependencies=keyed)
    for route in app.routes:
        if isinstance(route, APIRoute):
            route.summary = route.description.partition("\n")[0].rstrip(".")
    _add_pages(app)
    add_problem_handlers(app)
    app.add_middleware(Guard, settings=settings.guard)
    return app


def _about(settings: SiteSettings, agent: Agent | None) -> About:
    return About(
        name="cast_ray",
        version=version("cast-ray"),
        model=agent.model if agent else None,
        players=["human", "solver", "agent"] if agent else ["human", "solver"],
        runs=settings.runs is not None,
        limits={
            "max_body_bytes": settings.guard.max_body_bytes,
            "requests_per_minute": settings.guard.requests_per_minute,
            "max_playing": settings.sessions.max_playing,
            "request_timeout_s": settings.guard.request_timeout_s,
        },
    )


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(WEB / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(WEB / "docs.html", headers={"cache-control": "no-cache"})

    app.mount("/docs/files", StaticFiles(directory=_SWAGGER), name="docs")
    app.mount("/web", StaticFiles(directory=WEB), name="web")
