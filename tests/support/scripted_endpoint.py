"""A real OpenAI-compatible server on this machine that answers by a rule and fails by a script."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from cast_ray.games.sokoban import Sokoban
from solver_actors.sokoban.table import solve_sokoban
from tests.support.site import served

KEY = "sk-test-7f3a9c5e1b2d"
MODEL = "scripted-1"
GAME = Sokoban()
_A_HOLD_S = 30.0
_SOLVERS: dict[Any, Any] = {}
"""By layout: one table answers for all its states."""
UNREADABLE: dict[str, bytes] = {
    "page": b"<html>502 Bad Gateway</html>",
    "half a body": b'{"choices": [{"message": {"con',
    "empty body": b"",
    "no choices": b'{"choices": []}',
    "null choices": b'{"choices": null, "error": "x"}',
    "null message": b'{"choices": [{"finish_reason": "stop", "message": null}]}',
    "number": b'{"choices": [{"finish_reason": "stop", "message": {"content": 7}}]}',
    "part without text": (
        b'{"choices": [{"finish_reason": "stop", "message": {"content": [{"type": "text"}]}}]}'
    ),
    "unknown end without text": (
        b'{"choices": [{"finish_reason": "tool_calls", "message": {"content": null}}]}'
    ),
    "end by an error": b'{"choices": [{"finish_reason": "error", "message": {"content": "a"}}]}',
    "error without a status": b'{"error": {"message": "try another day", "code": "odd"}}',
    "stream": b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n',
    "half a character": (
        b'{"choices": [{"finish_reason": "stop", "message": {"content": "\\ud800"}}]}'
    ),
    "no text at all": b"\xff\xfe\xfd",
    "list": b"[]",
    "deep": b"[" * 100_000,
}
"""Bodies of answers, none of which is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """An answer in a form that OpenAI does not use."""

    choice: dict[str, Any]
    text: str
    """That it holds."""
    finish_reason: str = "stop"
    """That it counts as."""
    usage: Any = None

    @property
    def body(self) -> bytes:
        return json.dumps({"choices": [self.choice], "usage": self.usage}).encode()


def _said(content: Any, ended: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"finish_reason": ended, "message": {"content": content, **more}}


ODD: dict[str, Odd] = {
    "null": Odd(choice=_said(None), text=""),
    "null, cut off": Odd(choice=_said(None, "length"), text="", finish_reason="length"),
    "null, filtered": Odd(choice=_said(None, "content_filter"), text=""),
    "no content": Odd(choice={"finish_reason": "stop", "message": {"role": "assistant"}}, text=""),
    "thoughts alone": Odd(choice=_said(None, reasoning_content="hm"), text=""),
    "refusal": Odd(choice=_said(None, refusal="No."), text="No."),
    "refusal beside an empty text": Odd(choice=_said("", refusal="No."), text="No."),
    "no parts": Odd(choice=_said([]), text=""),
    "parts": Odd(
        choice=_said(
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "a"},
                "b",
                {"text": "c"},
                {"type": "output_text", "text": "d"},
            ]
        ),
        text="abcd",
    ),
    "text without a message": Odd(choice={"finish_reason": "stop", "text": "a"}, text="a"),
    "unknown end": Odd(choice=_said("a", "tool_calls"), text="a"),
    "null end": Odd(choice=_said("a", None), text="a"),
    "list for an end": Odd(choice=_said("a", []), text="a"),
    "no end": Odd(choice={"message": {"content": "a"}}, text="a"),
    "unknown end, few tokens": Odd(
        choice=_said("a", "eos"), text="a", usage={"completion_tokens": 99}
    ),
    "unknown end, all tokens": Odd(
        choice=_said("a", "eos"), text="a", finish_reason="length", usage={"completion_tokens": 100}
    ),
    "another word for cut off": Odd(
        choice=_said("a", "MAX_TOKENS"), text="a", finish_reason="length"
    ),
    "null usage": Odd(choice=_said("a"), text="a"),
    "null error": Odd(choice={"error": None, **_said("a")}, text="a"),
}
"""Answers of at most 100 tokens."""


def num_tokens(text: str) -> int:
    """Return how the server counts: words, and one for the end."""
    return len(text.split()) + 1


def prompt_tokens(messages: list[dict[str, str]]) -> int:
    """Return how the server counts a conversation."""
    return sum(num_tokens(message["content"]) for message in messages)


def best_action(messages: list[dict[str, str]]) -> str:
    """Return the solver's action for the board of the last message."""
    board = messages[-1]["content"].rpartition("Board:\n")[2].partition("\nSteps left")[0]
    state = GAME.decode(board)
    solver = _SOLVERS.get(state.layout)
    if solver is None:
        solver = _SOLVERS[state.layout] = solve_sokoban(state)
    return f"I go on. ```{solver.best_action(state)}```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as the script sees it."""

    body: dict[str, Any]
    digest: str
    """Of the body."""
    place: int
    """Of the digest, in the order in which new ones came; from 0."""
    repetition: int
    """How often the same was asked before."""
    has_left: Callable[[], Awaitable[bool]]
    """Whether who asked is not there any more."""


Fault = Callable[[Asked], Awaitable[Response | None]]
"""Returns what is answered instead; None = the answer after all."""
Script = Callable[[Asked], Fault | None]
Rule = Callable[[list[dict[str, str]]], str]


def refused(
    status: int, message: str, *, headers: dict[str, str] | None = None, **more: Any
) -> Fault:
    """Return an error in OpenAI's form."""

    async def fault(asked: Asked) -> Response:
        error = {"message": message, "type": "error", "param": None, "code": None, **more}
        return JSONResponse({"error": error}, status_code=status, headers=headers)

    return fault


def rate_limited(retry_after: str = "0.05") -> Fault:
    """Return a 429."""
    return refused(429, "slow down", headers={"retry-after": retry_after})


def garbled(body: bytes, *, headers: dict[str, str] | None = None) -> Fault:
    """Return a 200 with another body."""

    async def fault(asked: Asked) -> Response:
        return Response(body, media_type="application/json", headers=headers)

    return fault


REPORTS: dict[str, Callable[[int], Any]] = {
    "error": lambda status: {"error": {"code": status, "message": "so it is"}},
    "error beside null choices": lambda status: {
        "choices": None,
        "error": {"code": str(status), "message": "so it is"},
    },
    "error in a choice": lambda status: {
        "choices": [
            {"error": {"code": status, "message": "so it is"}, **_said("half an", "error")},
        ]
    },
    "error as the body": lambda status: {"object": "error", "code": status, "message": "so it is"},
    "status as the body": lambda status: {"status": status, "detail": "so it is"},
}
"""Bodies under status 200 that report another one."""


def reported(status: int, form: str = "error", *, headers: dict[str, str] | None = None) -> Fault:
    """Return a 200 whose body reports an error."""
    return garbled(json.dumps(REPORTS[form](status)).encode(), headers=headers)


def slow(seconds: float) -> Fault:
    """Return an answer that comes late."""

    async def fault(asked: Asked) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0 and not await asked.has_left():
            await asyncio.sleep(min(left, 0.02))

    return fault


def dripping(interval_s: float) -> Fault:
    """Return an answer that comes byte by byte and never ends."""

    async def fault(asked: Asked) -> Response:
        async def blanks() -> AsyncIterator[bytes]:
            end = asyncio.get_running_loop().time() + _A_HOLD_S
            while asyncio.get_running_loop().time() < end:
                yield b" "
                await asyncio.sleep(interval_s)

        return StreamingResponse(blanks(), media_type="application/json")

    return fault


def fine(asked: Asked) -> None:
    """Never fail: a script."""


class ScriptedEndpoint:
    """Counts what it was asked and what it delivered; read it from any thread."""

    def __init__(
        self, rule: Rule = best_action, script: Script = fine, *, counts_tokens: bool = True
    ) -> None:
        self.rule = rule
        self.script = script
        self.counts_tokens = counts_tokens
        self.hold_from = 1 << 60
        """Requests after so many deliveries wait, and are answered never."""
        self.num_asked = 0
        self.asked_at: list[float] = []
        self.bodies: list[dict[str, Any]] = []
        self.repetitions: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        """Of each request, by digest: answers that went out whole."""
        self.num_held = 0
        self.num_under_way = 0
        self.most_under_way = 0

    @property
    def num_delivered(self) -> int:
        """All answers that went out whole."""
        return self.delivered.total()

    @property
    def is_at_rest(self) -> bool:
        """Whether it holds requests and is at no other."""
        return self.num_held > 0 and self.num_held == self.num_under_way

    def app(self) -> FastAPI:
        """Return it as an application."""
        app = FastAPI()
        app.post("/v1/chat/completions")(self._answer)
        return app

    async def _answer(self, request: Request) -> Response:
        self.num_under_way += 1
        self.most_under_way = max(self.most_under_way, self.num_under_way)
        try:
            return await self._answer_counted(request)
        finally:
            self.num_under_way -= 1

    async def _answer_counted(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            given = request.headers.get("authorization", "")
            return JSONResponse({"error": {"message": f"bad key {given}"}}, status_code=401)
        body = await request.json()
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        self.num_asked += 1
        self.bodies.append(body)
        self.asked_at.append(asyncio.get_running_loop().time())
        repetition = self.repetitions[digest]
        self.repetitions[digest] += 1
        place = list(self.repetitions).index(digest)
        if self.num_asked > self.hold_from:
            return await self._hold(request)
        asked = Asked(
            body=body,
            digest=digest,
            place=place,
            repetition=repetition,
            has_left=request.is_disconnected,
        )
        fault = self.script(asked)
        instead = await fault(asked) if fault is not None else None
        if instead is not None:
            return instead
        if await request.is_disconnected():
            return Response(status_code=499)
        return _Counted(self._completion(body), self.delivered, digest)

    async def _hold(self, request: Request) -> Response:
        self.num_held += 1
        try:
            async with asyncio.timeout(_A_HOLD_S):
                while not await request.is_disconnected():
                    await asyncio.sleep(0.01)
        finally:
            self.num_held -= 1
        return Response(status_code=499)

    def _completion(self, body: dict[str, Any]) -> bytes:
        words = self.rule(body["messages"]).split(" ")
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        is_whole = len(words) + 1 <= limit
        text = " ".join(words if is_whole else words[:limit])
        content: dict[str, Any] = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop" if is_whole else "length",
                    "message": {"role": "assistant", "content": text},
                }
            ],
        }
        if self.counts_tokens:
            content["usage"] = {
                "prompt_tokens": prompt_tokens(body["messages"]),
                "completion_tokens": len(words) + 1 if is_whole else limit,
            }
        return json.dumps(content).encode()


class _Counted(Response):
    """A response that is counted when all of it was handed to the connection."""

    def __init__(self, body: bytes, delivered: Counter[str], digest: str) -> None:
        super().__init__(body, media_type="application/json")
        self._delivered = delivered
        self._digest = digest

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await super().__call__(scope, receive, send)
        self._delivered[self._digest] += 1


@contextmanager
def serving(endpoint: ScriptedEndpoint, **options: Any) -> Iterator[dict[str, str]]:
    """Serve an endpoint and give the environment variables that lead to it.

    ``options`` are uvicorn's, such as ``ssl_certfile`` and ``ssl_keyfile`` for TLS.
    """
    with served(endpoint.app(), **options) as address:
        yield {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": KEY}
