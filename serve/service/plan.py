"""A service as Serve applications: the model's servers, OpenAI's interface, the site.

The service's applications for ``serve deploy configs/serve/agent.yaml``.

Each function is named by an ``import_path`` of that file and gets its ``args``. API keys come from
``CAST_RAY_API_KEYS`` in the environment of the cluster's nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.serve.deployment import Application

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError, RemoteTimeout
from cast_ray.evaluation.models import model_directory
from cast_ray.games import game_names
from cast_ray.games.analysis import Analyst
from cast_ray.learner.small_policy import read_chat_pieces
from cast_ray.rollout.chat import ChatPieces
from cast_ray.runs.remote_directories import PathOrUri, localized
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import is_uri
from cast_ray.training.workers import conversation_limit
from serve.service.access import api_keys, games_with_deadlocks, guard_settings
from serve.service.site_deployment import AgentOptions, site_application
from serve.site.agent import AnswerLimits
from serve.site.app import SiteSettings
from serve.site.guard import GuardSettings
from solver_actors.analyst.remote import (
    NearAnalyst,
    RemoteAnalyst,
    games_with_tables,
    start_analysts,
)
from solver_actors.kernels import compile_kernels

MODEL_APP, OPENAI_APP, SITE_APP = "cast-ray-model", "cast-ray-openai", "cast-ray-site"
OPENAI_ROUTE = "/v1"
_OPENAI_REPLICAS = 4
_ANALYST_BYTES = 1 << 30
_NEAR_BYTES = 1 << 28
_ANALYST_TIMEOUT_S = 30.0
_ANALYST_CPUS = 0.5
_ANALYST_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """What is served, checked before anything starts."""

    model_dir: Path
    pieces: ChatPieces
    name: str
    """Of the model, for clients."""
    config: TrainConfig
    """Engine and token limits."""
    guard: GuardSettings
    min_replicas: int
    max_replicas: int
    runs: Path | None

    @classmethod
    def of(
        cls,
        model: PathOrUri,
        config: TrainConfig,
        *,
        guard: GuardSettings,
        name: str = "",
        min_replicas: int = 1,
        max_replicas: int = 1,
        runs: Path | None = None,
    ) -> ServicePlan:
        """Find the model and read its chat template.

        Args:
            model: model directory, or run directory (its ``model/`` is taken), or the URI of one.
            config: engine and token limits.
            guard: who may ask.
            name: of the model; empty = that of its directory.
            min_replicas: model servers that always run.
            max_replicas: as many as are asked for.
            runs: directory of runs to show.

        Raises:
            ModelError: there is no model, or its chat template cannot be appended to.
        """
        model_dir = localized(model_directory(model))
        return cls(
            model_dir=model_dir,
            pieces=read_chat_pieces(model_dir),
            name=name or _name_of(model),
            config=config,
            guard=guard,
            min_replicas=min_replicas,
            max_replicas=max(min_replicas, max_replicas),
            runs=runs,
        )

    @property
    def num_cpus(self) -> float:
        """What Ray reserves, with one server more than run: a new model starts beside an old."""
        return self.config.resources.cpus_per_engine * (self.max_replicas + 1) + _ANALYST_CPUS

    def model_application(self) -> Application:
        """Return the model's servers."""
        from serve.service.model_server import ModelOptions, model_application  # ten seconds: vLLM

        resources, engine = self.config.resources, self.config.engine
        return model_application(
            ModelOptions(
                model_dir=str(self.model_dir),
                name=self.name,
                dtype=engine.dtype,
                max_model_len=conversation_limit(self.config),
                max_num_seqs=engine.max_num_seqs,
                kv_cache_gib=engine.kv_cache_gib,
                num_threads=engine.num_threads,
                cpus=resources.cpus_per_engine,
                gpus=resources.gpus_per_engine,
                tensor_parallel_size=engine.tensor_parallel_size,
                min_replicas=self.min_replicas,
                max_replicas=self.max_replicas,
            )
        )

    def openai_application(self) -> Application:
        """Return OpenAI's interface, for ``OPENAI_ROUTE``."""
        from serve.service.openai_app import openai_application

        return openai_application(
            model_app=MODEL_APP, name=self.name, guard=self.guard, max_replicas=_OPENAI_REPLICAS
        )

    def site_application(self) -> Application:
        """Return agent, solver, games and page, for ``/``."""
        engine, rollout = self.config.engine, self.config.rollout
        agent = AgentOptions(
            app_name=MODEL_APP,
            model=self.name,
            model_dir=str(self.model_dir),
            pieces=self.pieces,
            limits=AnswerLimits(
                max_answer_tokens=rollout.max_answer_tokens,
                prompt_tokens=rollout.prompt_tokens,
                response_tokens=rollout.response_tokens,
            ),
            slots=engine.max_num_seqs * self.max_replicas,
            timeout_s=engine.request_timeout_s,
            recovery_timeout_s=engine.start_timeout_s,
        )
        settings = SiteSettings(
            guard=self.guard, runs=self.runs, games_with_deadlocks=games_with_deadlocks()
        )
        return site_application(settings, agent=agent, analyst=cluster_analyst)


@asynccontextmanager
async def cluster_analyst() -> AsyncIterator[Analyst]:
    """Give an analyst whose searches run in a Ray actor of its own."""
    # A child of the process that asks: it ends with it.
    handles = start_analysts(
        1, num_cpus=_ANALYST_CPUS, max_bytes=_ANALYST_BYTES, games=game_names()
    )
    compile_kernels(games_with_tables())  # the first board would wait for them, and all others too
    try:
        async with asyncio.timeout(_ANALYST_START_S):  # its kernels take some seconds to load
            await asyncio.gather(*(handle.counters.remote() for handle in handles))
    except TimeoutError:
        raise RemoteTimeout(
            f"the analyst did not start within {_ANALYST_START_S:g} s; see its log"
        ) from None
    far = RemoteAnalyst(handles, _ANALYST_TIMEOUT_S)
    yield NearAnalyst(far, max_bytes=_NEAR_BYTES)
    for handle in handles:
        ray.kill(handle)


def _name_of(model: PathOrUri) -> str:
    """Return the directory's name; of a run's ``model/`` that of the run."""
    path = Path(str(model).rstrip("/"))
    return path.parent.name if path.name == "model" and path.parent.name else path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """The ``args`` of the file, the same for all three applications."""

    model: str
    """Model directory or run directory that every node sees, or the URI of one."""
    host: str
    """That of ``http_options``: one that others reach needs API keys."""
    name: str = ""
    min_replicas: int = 1
    max_replicas: int = 1
    runs: str = ""
    overrides: list[str] = field(default_factory=list)
    """Configuration values as key=value."""


def model(args: dict[str, Any]) -> Application:
    """Return the model's servers."""
    return plan_of(args).model_application()


def openai(args: dict[str, Any]) -> Application:
    """Return OpenAI's interface."""
    return plan_of(args).openai_application()


def site(args: dict[str, Any]) -> Application:
    """Return agent, solver, games and page."""
    return plan_of(args).site_application()


def plan_of(args: dict[str, Any]) -> ServicePlan:
    """Return what the file's ``args`` ask for.

    Raises:
        ConfigError: one is missing, unknown or of no use.
    """
    try:
        given = ServeArguments(**args)
    except TypeError as error:
        raise ConfigError(f"args of the Serve file: {error}") from None
    return ServicePlan.of(
        given.model if is_uri(given.model) else Path(given.model),
        load_config(stored_config(given.model), given.overrides),
        guard=guard_settings(given.host, api_keys()),
        name=given.name,
        min_replicas=given.min_replicas,
        max_replicas=given.max_replicas,
        runs=Path(given.runs) if given.runs else None,
    )
