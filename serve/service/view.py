"""``cast-ray view``: the page without an engine, to inspect runs and play games."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from cast_ray.errors import RunDirectoryError
from cast_ray.games import game_names
from serve.service.access import (
    api_keys,
    base_url,
    check_port,
    games_with_deadlocks,
    guard_settings,
)
from serve.site.app import Players, SiteSettings, build_site
from solver_actors.analyst.local import LocalAnalyst
from solver_actors.kernels import compile_kernels

_ANALYST_BYTES = 1 << 30
RUNS = Path("runs")
"""Where runs are made unless a path says otherwise; it need not exist yet."""
DEMO = Path(__file__).parents[1] / "demo"
"""A small run of each game, recorded by ``docs/make_demo.sh``."""


def view_runs(runs: Path, *, host: str, port: int, say: Callable[[str], None]) -> None:
    """Show a directory of runs, or one run, until Ctrl-C.

    Raises:
        RunDirectoryError: there is no such directory, and it is not ``RUNS``.
        ConfigError: the address is public and there is no API key, or the port is taken.
    """
    guard = guard_settings(host, api_keys())
    check_port(host, port)
    if not runs.is_dir() and runs != RUNS:
        raise RunDirectoryError(f"{runs} is not a directory: name a run or a directory of runs")
    say("loading the solvers")
    compile_kernels(game_names())  # or the first board waits for them, and blocks the page
    settings = SiteSettings(guard=guard, runs=runs, games_with_deadlocks=games_with_deadlocks())

    @asynccontextmanager
    async def players() -> AsyncIterator[Players]:
        analyst = LocalAnalyst(max_bytes=_ANALYST_BYTES)
        place = base_url(host, port)
        shown = f"{runs} is shown at {place}/#/runs"
        if not runs.is_dir():
            shown = f"no runs here yet (cast-ray train makes one); the games are at {place}"
        say(f"{shown} (Ctrl-C ends it)")
        try:
            yield Players(analyst=analyst)
        finally:
            analyst.close()

    uvicorn.run(
        build_site(settings, players),
        host=host.strip("[]"),
        port=port,
        log_level="warning",
        lifespan="on",
        server_header=False,
        http="h11",  # which bounds headers (64 KiB), as httptools does not
        limit_concurrency=2 * guard.max_requests,
        timeout_graceful_shutdown=3,
    )
