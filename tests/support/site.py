"""The service without Ray: real routes, guard and solver; a scripted policy for the engine."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from fastapi import FastAPI

from cast_ray.config.train import RolloutConfig
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.generate import Generate, GenerateRequest
from serve.service.access import games_with_deadlocks
from serve.site.agent import Agent
from serve.site.app import Players, SiteSettings, build_site
from serve.site.guard import GuardSettings
from solver_actors.analyst.local import LocalAnalyst
from tests.support.scripted import ScriptedPolicy

FREE = SiteSettings(
    guard=GuardSettings(requests_per_minute=600_000, burst=100_000),
    games_with_deadlocks=games_with_deadlocks(),
)
"""Nobody is slowed down."""

SMALL_SERVICE = (
    "engine.dtype=float32",
    "engine.max_num_seqs=8",
    "engine.max_model_len=4096",
    "rollout.prompt_tokens=2048",
    "rollout.response_tokens=2048",
    "rollout.max_answer_tokens=16",
)
"""Values of ``cast-ray serve`` for a small random model."""
SOKOBAN = {"game": "sokoban", "board": ["######", "#P___#", "#_X__#", "#__O_#", "######"]}
LARGE_SOKOBAN = {
    "game": "sokoban",
    "board": ["#" * 100, "#P" + 97 * "_" + "#", "#_X" + 96 * "_" + "#"]
    + ["#" + 98 * "_" + "#"] * 95
    + ["#" + 96 * "_" + "O_#", "#" * 100],
}
RUSH_HOUR = {"game": "rush_hour", "board": "..C.....C.B.AA..B.....B.x..DD......."}
MINEFIELD = {
    "game": "minesweeper",
    "rows": 5,
    "cols": 5,
    "mines": [[0, 3], [2, 1], [4, 4]],
    "first_click": [0, 0],
}


def site_app(
    settings: SiteSettings = FREE,
    *,
    tokenizer: ChatTokenizer | None = None,
    generate: Generate | None = None,
    answer: Callable[[GenerateRequest], str] | None = None,
    max_answer_tokens: int = 32,
) -> FastAPI:
    """Return the application, with an agent if there is a tokenizer."""

    @asynccontextmanager
    async def players() -> AsyncIterator[Players]:
        analyst = LocalAnalyst(max_bytes=1 << 28)
        agent = None
        if tokenizer is not None:
            policy = generate or ScriptedPolicy(tokenizer, answer or (lambda _: "I pass."))
            agent = Agent(
                model="scripted",
                tokenizer=tokenizer,
                generate=policy,
                limits=RolloutConfig(
                    max_answer_tokens=max_answer_tokens, prompt_tokens=2048, response_tokens=8192
                ),
                conversation_tokens=10240,
            )
        try:
            yield Players(analyst=analyst, agent=agent)
        finally:
            analyst.close()

    return build_site(settings, players)


def guarded(**changes: Any) -> SiteSettings:
    """Return settings with another guard."""
    return replace(FREE, guard=replace(FREE.guard, **changes))


@contextmanager
def served(app: FastAPI, **options: Any) -> Iterator[str]:
    """Serve an application on a free port of this machine and give its address."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", lifespan="on", **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(600):
        if server.started:
            break
        thread.join(0.05)
    assert server.started, "the server does not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http{'s' if config.is_ssl else ''}://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def read_events(text: str) -> list[tuple[str, str, Any]]:
    """Return (name, id, data) of server-sent events."""
    events = []
    for block in text.split("\n\n"):
        lines = dict(
            line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":")
        )
        if lines:
            events.append((lines["event"], lines.get("id", ""), json.loads(lines["data"])))
    return events
