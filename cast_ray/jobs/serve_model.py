"""``cast-ray serve``: the trained agent, the solver and the page, on Ray Serve."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import ray
from ray import serve as ray_serve
from ray.serve.exceptions import RayServeException

from cast_ray.analysis import Analyst
from cast_ray.config import TrainConfig
from cast_ray.errors import EngineError
from cast_ray.games import game_names
from cast_ray.jobs.evaluate_model import model_directory
from cast_ray.jobs.ray_session import ray_session
from cast_ray.jobs.serve_guard import (
    api_keys,
    base_url,
    check_port,
    games_with_deadlocks,
    guard_settings,
)
from cast_ray.jobs.workers import conversation_limit
from cast_ray.small_policy import read_chat_pieces
from cast_ray.stored_directory import Place, localized
from serve.site.agent import AnswerLimits
from serve.site.app import SiteSettings
from serve.site_deployment import AgentOptions, site_application
from solver_actors.analyst_actor import RemoteAnalyst, start_analysts

MODEL_APP, OPENAI_APP, SITE_APP = "cast-ray-model", "cast-ray-openai", "cast-ray-site"
_ANALYST_BYTES = 1 << 30
_ANALYST_TIMEOUT_S = 30.0
_ANALYST_CPUS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """What the command line says of a service."""

    host: str = "127.0.0.1"
    port: int = 8000
    name: str = ""
    """Of the model, for clients; empty = that of its directory."""
    max_replicas: int = 1
    """Model servers, as many as are asked for; at least one."""
    runs: Path | None = None
    """Directory of runs to show."""


def serve_model(
    model: Place,
    config: TrainConfig,
    options: ServiceOptions,
    *,
    say: Callable[[str], None],
    until: threading.Event,
) -> None:
    """Start the service, and end it when told to.

    Args:
        model: model directory, or run directory (its ``model/`` is taken), or the URI of one.
        config: engine and token limits; those of the run if it is one.
        options: where and how.
        say: tells the user.
        until: ends it.

    Raises:
        ConfigError, ModelError: something is not as it must be, said before anything starts.
        EngineError: an application does not come up.
    """
    guard = guard_settings(options.host, api_keys())
    if not os.environ.get("RAY_ADDRESS"):  # else Serve may be listening there already
        check_port(options.host, options.port)
    model_dir = localized(model_directory(model))
    pieces = read_chat_pieces(model_dir)
    name = options.name or _name_of(model)
    limits = AnswerLimits(
        max_answer_tokens=config.rollout.max_answer_tokens,
        prompt_tokens=config.rollout.prompt_tokens,
        response_tokens=config.rollout.response_tokens,
    )
    # Imported here: vLLM takes ten seconds, and what is wrong above is said without it.
    say("loading vLLM")
    from serve.model_server import ModelOptions, model_application
    from serve.openai_app import ROUTE, openai_application

    resources, engine = config.resources, config.engine
    model_options = ModelOptions(
        model_dir=str(model_dir),
        name=name,
        dtype=engine.dtype,
        max_model_len=conversation_limit(config),
        max_num_seqs=engine.max_num_seqs,
        kv_cache_gib=engine.kv_cache_gib,
        num_threads=engine.num_threads,
        cpus=resources.cpus_per_engine,
        gpus=resources.gpus_per_engine,
        tensor_parallel_size=engine.tensor_parallel_size,
        min_replicas=1,
        max_replicas=options.max_replicas,
    )
    agent = AgentOptions(
        app_name=MODEL_APP,
        model=name,
        model_dir=str(model_dir),
        pieces=pieces,
        limits=limits,
        slots=engine.max_num_seqs * options.max_replicas,
        timeout_s=engine.request_timeout_s,
        recovery_timeout_s=engine.start_timeout_s,
    )
    settings = SiteSettings(
        guard=guard, runs=options.runs, games_with_deadlocks=games_with_deadlocks()
    )
    cpus = (resources.cpus_per_engine + 0.5) * (options.max_replicas + 1)
    with ray_session(num_cpus=cpus):
        ray_serve.start(http_options={"host": options.host, "port": options.port})
        try:
            say(f"starting a server of {name}")
            _run(MODEL_APP, model_application(model_options), route=None)
            say("starting the site")
            _run(
                OPENAI_APP,
                openai_application(model_app=MODEL_APP, name=name, guard=guard, max_replicas=4),
                route=ROUTE,
            )
            site = site_application(settings, agent=agent, analyst=cluster_analyst)
            _run(SITE_APP, site, route="/")
            say(ready_text(options, name))
            until.wait()
            say("ending")
        finally:
            for app in (SITE_APP, OPENAI_APP, MODEL_APP):
                ray_serve.delete(app)


@asynccontextmanager
async def cluster_analyst() -> AsyncIterator[Analyst]:
    """Give an analyst whose solvers run in a Ray actor of its own."""
    # Children of the process that asks: they end with it.
    handles = start_analysts(
        1, num_cpus=_ANALYST_CPUS, max_bytes=_ANALYST_BYTES, games=game_names()
    )
    yield RemoteAnalyst(handles, _ANALYST_TIMEOUT_S)
    for handle in handles:
        ray.kill(handle)


def ready_text(options: ServiceOptions, name: str) -> str:
    """Return what to do now."""
    base = base_url(options.host, options.port)
    return "\n".join(
        [
            f"{name} is served:",
            f"  {base}/       play, watch, look into runs",
            f"  {base}/docs   every request, to try out",
            f"  {base}/v1     for OpenAI's clients: base_url, with model {name!r}",
            "Ctrl-C ends it.",
        ]
    )


def _run(app_name: str, application: ray_serve.Application, *, route: str | None) -> None:
    try:
        ray_serve.run(application, name=app_name, route_prefix=route)
    except (RuntimeError, RayServeException) as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(
            f"the application {app_name} does not come up: {reason}; Serve's logs say more"
        ) from error


def _name_of(model: Place) -> str:
    """Return the directory's name; of a run's ``model/`` that of the run."""
    path = Path(str(model).rstrip("/"))
    return path.parent.name if path.name == "model" and path.parent.name else path.name
