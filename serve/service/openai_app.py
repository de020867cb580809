"""OpenAI's interface from Ray's LLM library, behind the service's own guard."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from ray import serve as ray_serve
from ray.exceptions import RayError
from ray.serve.deployment import Application
from ray.serve.exceptions import RayServeException
from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from ray.serve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest

from cast_ray.errors import CastRayError
from serve.service.app_handles import ONE_LOOP, wait_for_app
from serve.site.guard import Guard, GuardSettings
from serve.site.problems import ApiProblem, add_problem_handlers

logger = logging.getLogger(__name__)

_MODEL_TIMEOUT_S = 60.0
"""Until the model's application is known, not until it is ready."""
MAX_CHOICES = 16
"""Answers to one request."""


class OpenAI(OpenAiIngress):
    """Ray's ingress with this service's error messages."""

    async def __init__(self, *, model_app: str, name: str) -> None:
        handle = await wait_for_app(model_app, timeout_s=_MODEL_TIMEOUT_S)
        # Any: Ray's own card is an object that says more.
        card: Any = {"id": name, "object": "model", "created": 0, "owned_by": "cast_ray"}
        super().__init__(llm_deployments={name: handle}, model_cards={name: card})

    # Responses where Ray's ingress returns models: FastAPI sends both.
    async def models(self) -> JSONResponse:  # pyright: ignore[reportIncompatibleMethodOverride]
        """List the models."""
        return JSONResponse({"object": "list", "data": list(self._model_cards.values())})

    async def model_data(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: str
    ) -> JSONResponse:
        """Return one model."""
        if model not in self._model_cards:
            raise _unknown_model(model, self._model_cards)
        return JSONResponse(self._model_cards[model])

    async def chat(self, body: ChatCompletionRequest, request: Request) -> Response:
        """Answer a conversation, complete or as a stream."""
        self._check(body.model, body.n)
        return await _answered(super().chat(body, request))

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """Complete a text, at once or as a stream."""
        self._check(body.model, body.n)
        return await _answered(super().completions(body, request))

    def _check(self, model: str | None, num_choices: int | None) -> None:
        if model is not None and model not in self._model_cards:
            raise _unknown_model(model, self._model_cards)
        if (num_choices or 1) > MAX_CHOICES:
            raise ApiProblem(422, "field_invalid", f"n must be {MAX_CHOICES} or less", field="n")


def _unknown_model(model: str, known: Any) -> ApiProblem:
    return ApiProblem(
        404,
        "model_not_found",
        f"there is no model {model[:100]!r} here: use {', '.join(known)}",
        field="model",
    )


async def _answered(work: Awaitable[Response]) -> Response:
    try:
        return await work
    except CastRayError:
        raise
    except (RayError, RayServeException) as error:
        logger.error("The model's server failed: %s", error)
        raise ApiProblem(
            502, "engine_failed", "the model's server failed with this request; try it again"
        ) from None
    except Exception as error:
        status = getattr(error, "status_code", None)  # Ray's own error of an HTTP answer
        if not isinstance(status, int):
            raise
        code = {404: "model_not_found", 408: "time_out"}.get(status)
        said = str(getattr(error, "message", None) or getattr(error, "detail", error))
        raise ApiProblem(
            status, code or ("field_invalid" if status < 500 else "engine_failed"), said
        ) from None


def openai_application(
    *, model_app: str, name: str, guard: GuardSettings, max_replicas: int
) -> Application:
    """Return the application, whose route is the ``/v1`` of OpenAI's clients.

    Args:
        model_app: name of the application of ``model_application``.
        name: of the model.
        guard: limits and keys.
        max_replicas: of this layer, which parses requests and forwards tokens.
    """
    app = FastAPI(title="cast_ray: OpenAI's interface", docs_url=None, redoc_url=None)
    add_problem_handlers(app)
    app.add_middleware(Guard, settings=guard)
    ingress = make_fastapi_ingress(
        OpenAI,
        endpoint_map={
            "models": lambda app: app.get("/models"),
            "model_data": lambda app: app.get("/models/{model:path}"),
            "chat": lambda app: app.post("/chat/completions", response_model=None),
            "completions": lambda app: app.post("/completions", response_model=None),
        },
        app=app,
    )
    deployment = ray_serve.deployment(
        name="OpenAI",
        max_ongoing_requests=guard.max_requests,
        max_queued_requests=guard.max_requests,
        autoscaling_config={"min_replicas": 1, "max_replicas": max_replicas},
        ray_actor_options={"num_cpus": 0, "runtime_env": ONE_LOOP},
        graceful_shutdown_timeout_s=120,
    )
    return deployment(ingress).bind(model_app=model_app, name=name)
