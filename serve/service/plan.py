"""The plan of a service as three Serve applications: model servers, OpenAI's interface, site.

``model``, ``openai`` and ``site`` are the ``import_path`` functions of
``serve deploy configs/serve/agent.yaml``, and get its ``args``. API keys come from
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
from cast_ray.evaluation.models import model_directory, pieces_of
from cast_ray.games import game_names
from cast_ray.games.analysis import Analyst
from cast_ray.rollout.chat_template import ChatPieces
from cast_ray.rollout.specs import with_model_limit
from cast_ray.runs.hub import pinned
from cast_ray.runs.remote_directories import sound_model
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import PathOrUri, hub_name, path_or_uri
from serve.engine.vllm_args import check_vllm_options
from serve.service.access import api_keys, guard_settings
from serve.service.app_handles import MODEL_APP
from serve.service.site_deployment import site_application
from serve.site.guard import GuardSettings
from solver_actors.analyst.remote import (
    NearAnalyst,
    RemoteAnalyst,
    games_with_tables,
    start_analysts,
)
from solver_actors.kernels import compile_kernels

OPENAI_ROUTE = "/v1"
_OPENAI_REPLICAS = 4
_NUM_ANALYSTS = 2
"""A caller occupies one of them at most."""
_ANALYST_BYTES = 1 << 29
_NEAR_BYTES = 1 << 28
_ANALYST_TIMEOUT_S = 30.0
_ANALYST_CPUS = 0.5
_ANALYST_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """What is served; checked before anything starts."""

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
            model: model directory, run directory (its ``model/`` is served), the URI of one, or a
                hub's model by its commit.
            config: engine and token limits.
            guard: who may ask.
            name: of the model; empty = its directory's.
            min_replicas: model servers that always run.
            max_replicas: most model servers, if requests need them.
            runs: directory of runs to show.

        Raises:
            ConfigError: an option of ``engine.vllm`` is unknown or must be set elsewhere.
            ModelError: there is no model, it is damaged, or its chat template is not append-only.
        """
        check_vllm_options(config.engine.vllm)
        model_dir = sound_model(model_directory(model))
        return cls(
            model_dir=model_dir,
            pieces=pieces_of(model, config),
            name=name or _name_of(model),
            config=with_model_limit(config, model_dir),
            guard=guard,
            min_replicas=min_replicas,
            max_replicas=max(min_replicas, max_replicas),
            runs=runs,
        )

    @property
    def num_cpus(self) -> float:
        """CPUs to reserve: one server more than run, so that a new model can replace an old one."""
        return self.config.resources.cpus_per_engine * (self.max_replicas + 1) + (
            _NUM_ANALYSTS * _ANALYST_CPUS
        )

    def model_application(self) -> Application:
        """Return the model's servers."""
        from serve.service.model_server import model_application  # ten seconds: vLLM

        return model_application(self)

    def openai_application(self) -> Application:
        """Return OpenAI's interface, for ``OPENAI_ROUTE``."""
        from serve.service.openai_app import openai_application

        return openai_application(
            model_app=MODEL_APP, name=self.name, guard=self.guard, max_replicas=_OPENAI_REPLICAS
        )

    def site_application(self) -> Application:
        """Return agent, solver, games and page, for ``/``."""
        return site_application(self, analyst=cluster_analyst)


@asynccontextmanager
async def cluster_analyst() -> AsyncIterator[Analyst]:
    """Provide an analyst whose searches run in Ray actors, children of this process."""
    handles = start_analysts(
        _NUM_ANALYSTS, num_cpus=_ANALYST_CPUS, max_bytes=_ANALYST_BYTES, games=game_names()
    )
    compile_kernels(games_with_tables())  # the first board would wait for them, and all others too
    try:
        async with asyncio.timeout(_ANALYST_START_S):  # its kernels take seconds to load
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
    return model.parent.name if model.name == "model" and model.parent.name else model.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """The ``args`` of the Serve file, the same for all three applications."""

    model: str
    """Model or run directory that every node can read, the URI of one, or a hub's model with a
    revision (``owner/name@main``)."""
    host: str
    """The same as in ``http_options``: an address that others can reach needs API keys."""
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
    """Return the plan of the Serve file's ``args``.

    Raises:
        ConfigError: an argument is missing, unknown or wrong.
    """
    try:
        given = ServeArguments(**args)
    except TypeError as error:
        raise ConfigError(f"args of the Serve file: {error}") from None
    # Relative paths mean nothing here, so that one which is not there is no reason to ask the hub.
    model = pinned(given.model) if hub_name(given.model)[1] else given.model
    location = path_or_uri(model)
    return ServicePlan.of(
        location,
        load_config(stored_config(location), given.overrides, is_stored=True),
        guard=guard_settings(given.host, api_keys()),
        name=given.name,
        min_replicas=given.min_replicas,
        max_replicas=given.max_replicas,
        runs=Path(given.runs) if given.runs else None,
    )
