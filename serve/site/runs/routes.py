"""Training runs over HTTP: read-only, and only below one directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from cast_ray.envs.registry import is_benchmark
from cast_ray.games import get_game
from cast_ray.games.analysis import Analyst
from cast_ray.runs.metrics import metric_facts
from serve.site import schemas
from serve.site.runs.browser import RunBrowser
from serve.site.runs.episode import StoredEpisode
from serve.site.runs.steps import Number, StepFilter
from serve.site.turn_values import excess_risk, shown_analysis

_Run = Annotated[str, Query(max_length=500, description="As the list of runs names it.")]


def router_of(root: Path) -> APIRouter:
    """Return the routes that show the runs below a directory."""
    browser = RunBrowser(root)
    router = APIRouter(prefix="/api", tags=["runs"])

    # Not async: files are read in a thread, while games continue.
    @router.get("/runs")
    def runs() -> dict[str, Any]:
        """All runs, newest first."""
        return {"runs": [asdict(run) for run in browser.runs()]}

    @router.get("/run")
    def run(run: _Run) -> dict[str, Any]:
        """One run: its summary, configuration, metrics and steps."""
        found = asdict(browser.run(run))
        return found.pop("summary") | found

    @router.get("/run/metrics")
    def metrics(
        run: _Run,
        columns: Annotated[str, Query(max_length=5000, description="Separated by commas.")] = "",
    ) -> dict[str, Any]:
        """Figures step by step, null = not measured; and what they are."""
        wanted = [name for name in columns.split(",") if name]
        return {"columns": browser.metrics(run, wanted), "metrics": metric_facts()}

    @router.get("/run/charts")
    def charts(run: _Run) -> dict[str, Any]:
        """What the charts of one run are drawn from."""
        return browser.charts(run)

    @router.get("/run/step")
    def step(run: _Run, step: Number, wanted: Annotated[StepFilter, Depends()]) -> dict[str, Any]:
        """A step's groups, and a page of its trajectories."""
        return asdict(browser.step(run, step, wanted))

    @router.get("/run/trajectory")
    async def trajectory(
        request: Request,
        run: _Run,
        step: Number,
        group: Number,
        episode: Number,
        attempt: Number | None = None,
    ) -> schemas.Episode:
        """One trajectory, with what the solver says of every board."""
        found = await run_in_threadpool(
            lambda: browser.trajectory(run, step, group=group, episode=episode, attempt=attempt)
        )
        return await _analysed(found, request.app.state.site.analyst)

    return router


async def _analysed(stored: StoredEpisode, analyst: Analyst) -> schemas.Episode:
    """Return an episode with what the solver says of every board."""
    episode = stored.episode
    if is_benchmark(episode.game):
        return episode  # nobody can say more of it
    game = get_game(episode.game)
    analyses = await analyst.analyse(episode.game, stored.states)
    for turn, analysis in zip(episode.turns, analyses, strict=False):
        turn.analysis = shown_analysis(analysis)
        turn.excess_risk = excess_risk(game, analysis, turn.action)
    episode.analysis = shown_analysis(analyses[-1])
    return episode
