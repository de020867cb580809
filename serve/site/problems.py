"""Errors as JSON: a stable code, one sentence for people, and the field of the request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cast_ray.errors import (
    ActorLostError,
    CastRayError,
    ConfigError,
    EngineError,
    NotStoredError,
    PuzzleError,
    RemoteTimeout,
    RunDirectoryError,
    TrajectoryError,
)

logger = logging.getLogger(__name__)

_SHOWN_CHARACTERS = 300
_TYPE_NAMES = ("str", "int", "float", "bool", "list", "dict")
"""pydantic adds the alternative of a union to the path; it is no field of the request."""
_OF_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
_OF_ERROR: tuple[tuple[type[CastRayError], int, str], ...] = (
    (PuzzleError, 422, "board_invalid"),
    (ConfigError, 422, "field_invalid"),
    (RemoteTimeout, 503, "engine_down"),
    (EngineError, 502, "engine_failed"),
    (ActorLostError, 503, "solver_down"),
    (RunDirectoryError, 409, "run_broken"),
    (TrajectoryError, 409, "run_broken"),
)
"""The first match counts."""


class ApiProblem(CastRayError):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        """Describe one.

        Args:
            status: of HTTP.
            code: stable; programs may compare it.
            message: one sentence: what is wrong, where, what to do.
            field: of the request, as ``puzzles[3].board``; None = no single one.
            retry_after_s: when to try again.
        """
        super().__init__(message)
        self.status, self.code, self.field = status, code, field
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object; ``type`` and ``param`` are for OpenAI's clients."""
        return problem_body(self.status, self.code, str(self), self.field)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def invalid_field(field: str, message: str) -> ApiProblem:
    """Return the error of a request whose field has a wrong value."""
    return ApiProblem(422, "field_invalid", message, field=field)


def problem_body(status: int, code: str, message: str, field: str | None) -> dict[str, Any]:
    """Return the JSON object of an error."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {
        "error": {"code": code, "message": message, "field": field, "type": kind, "param": field}
    }


def problem_of(error: CastRayError, *, field: str | None = None) -> ApiProblem:
    """Return one of our errors as an answer."""
    if isinstance(error, ApiProblem):
        if field is None or error.field is not None:
            return error
        return ApiProblem(error.status, error.code, str(error), field=field)
    if isinstance(error, NotStoredError):
        status = 422 if error.code == "field_invalid" else 404
        return ApiProblem(status, error.code, str(error), field=error.field or None)
    for kind, status, code in _OF_ERROR:
        if isinstance(error, kind):
            return ApiProblem(status, code, str(error), field=field)
    logger.error("Unexpected: %s", error, exc_info=error)
    return ApiProblem(500, "internal", f"{error}; see the service's log")


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of an application in this form."""

    @app.exception_handler(CastRayError)
    async def known_error(_: Request, error: CastRayError) -> JSONResponse:
        problem = problem_of(error)
        return JSONResponse(problem.body, problem.status, problem.headers)

    @app.exception_handler(RequestValidationError)
    async def of_schema(_: Request, error: RequestValidationError) -> JSONResponse:
        problem = _of_schema(error.errors())
        return JSONResponse(problem.body, problem.status)

    @app.exception_handler(HTTPException)
    async def of_route(request: Request, error: HTTPException) -> JSONResponse:
        code = _OF_STATUS.get(error.status_code, "field_invalid")
        message = f"{request.method} {_shown(request.url.path)}: {_shown(str(error.detail))}"
        if error.status_code in (404, 405) and error.detail == HTTPStatus(error.status_code).phrase:
            message = f"there is no {request.method} {_shown(request.url.path)}: see /docs"
        body = problem_body(error.status_code, code, message, None)
        return JSONResponse(body, error.status_code, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def unexpected_error(_: Request, error: Exception) -> JSONResponse:
        logger.error("Unexpected: %s", error, exc_info=error)
        message = "the service failed on this request; see its log"
        return JSONResponse(problem_body(500, "internal", message, None), 500)


def _of_schema(errors: Sequence[Mapping[str, Any]]) -> ApiProblem:
    """Return the first violation of the schema."""
    first = errors[0]
    if first["type"] == "json_invalid":
        where = first["loc"][-1] if isinstance(first["loc"][-1], int) else 0
        return ApiProblem(
            400, "json_broken", f"the body is not JSON at character {where}: send one object"
        )
    field = ""
    for part in first["loc"][1:]:  # without "body" or "query"
        if isinstance(part, int):
            field += f"[{part}]"
        elif part.isidentifier() and part not in _TYPE_NAMES:
            field += f".{part}" if field else part
    said = first["msg"][:1].lower() + first["msg"][1:]
    if first["type"] == "extra_forbidden":
        said = "there is no such field; see /docs"
    return ApiProblem(
        422, "field_invalid", _shown(f"{field or 'the body'}: {said}"), field=field or None
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
