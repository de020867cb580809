"""The service's applications for ``serve deploy configs/serve/agent.yaml``.

Each function is named by an ``import_path`` of that file and gets its ``args``. API keys come from
``CAST_RAY_API_KEYS`` in the environment of the cluster's nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.serve.deployment import Application

from cast_ray.config_file import load_config
from cast_ray.errors import ConfigError
from cast_ray.jobs.named_runs import stored_config
from cast_ray.jobs.serve_guard import api_keys, guard_settings
from cast_ray.jobs.service_plan import ServicePlan
from cast_ray.uris import is_uri


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
